// generate: generates text with a stored language model.

#include "command/command_line.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "registry.hpp"
#include "run/rank_agreement.hpp"
#include "run/ranks.hpp"
#include "stored_work.hpp"

namespace calm::apps {

int generate_main(int argc, char const* const* argv) {
    return run_program("generate", [&] {
        return run_on_ranks("generate", [&] {
            auto options = read_on_all_ranks([&] { return read_options<generate_options>(argc, argv); });
            if (!options) return 0;
            set_threads_and_timeout(*options);
            auto model = read_model_on_all_ranks(options->model);
            model.pattern = options->pattern;
            auto const& work = configuration_of(model).on(options->device, options->weights, needed_work::generation);
            return generate_stored(work, *options, model);
        });
    });
}

}  // namespace calm::apps
