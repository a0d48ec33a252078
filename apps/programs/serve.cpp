// serve: answers completions over HTTP.

#include "command/command_line.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "registry.hpp"
#include "run/ranks.hpp"
#include "serve/service.hpp"

namespace calm::apps {

int serve_main(int argc, char const* const* argv) {
    return run_program("serve", [&] {
        auto const options = read_options<serve_options>(argc, argv);
        if (!options) return 0;
        refuse_ranks();
        if (options->model.empty()) return serve_run(*options);
        auto model = opened_model(options->model);
        model.pattern = options->pattern;
        auto const& work = configuration_of(model).on(options->device, options->weights, needed_work::generation);
        return serve_model(work, *options, model);
    });
}

}  // namespace calm::apps
