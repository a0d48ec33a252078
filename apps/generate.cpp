// generate: text that a stored language model writes.

#include "command/command_line.hpp"
#include "program.hpp"
#include "registry.hpp"
#include "run/ranks.hpp"

using namespace calm::apps;

int main(int argc, char** argv) {
    return run_program("generate", [&] {
        return run_on_ranks("generate", [&] {
            auto options = read_generate(argc, argv);
            if (!options) return 0;
            options->threads = threads_of_rank(options->threads);
            auto const model = opened_model(options->model);
            return configuration_of(model).on(options->device, options->weights).generate(*options, model);
        });
    });
}
