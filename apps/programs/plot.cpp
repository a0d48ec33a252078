// plot: draws the training curve of a run, or writes its metrics for TensorBoard.

#include "calm/base/quoted.hpp"
#include "command/command_line.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "run/event_file.hpp"
#include "run/training_curve.hpp"
#include "text/text_output.hpp"

namespace calm::apps {

int plot_main(int argc, char const* const* argv) {
    return run_program("plot", [&] {
        auto const options = read_options<plot_options>(argc, argv);
        if (!options) return 0;
        int status = 0;
        for (auto const& run : options->runs) {
            auto const picture = options->format == "tensorboard" ? plot_outcome{write_events(run), true}
                                                                  : plot_training(run, options->format);
            if (picture.made) {
                text_output().put(calm::printable_line(picture.sentence) + "\n");
            } else {
                log_line(called("plot") + ": " + picture.sentence);
                status = no_picture;
            }
        }
        return status;
    });
}

}  // namespace calm::apps
