// inspect: describes a model directory.

#include "command/command_line.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "registry.hpp"
#include "stored_tables.hpp"
#include "text/text_output.hpp"

namespace calm::apps {

int inspect_main(int argc, char const* const* argv) {
    return run_program("inspect", [&] {
        auto const options = read_options<inspect_options>(argc, argv);
        if (!options) return 0;
        auto model = opened_model(options->model);
        model.pattern = options->pattern;
        text_output().put(model_text(model));
        return 0;
    });
}

}  // namespace calm::apps
