// evaluate: how good a stored model is on text it has not seen.

#include "command/command_line.hpp"
#include "program.hpp"
#include "registry.hpp"
#include "text/text_output.hpp"

using namespace calm::apps;

int main(int argc, char** argv) {
    return run_program("evaluate", [&] {
        auto const options = read_evaluate(argc, argv);
        if (!options) return 0;
        auto const model = calm::read_model_description(options->model);
        auto const found = configuration_of(model).evaluate(*options, model);
        text_output().put(to_json(found) + "\n");
        tell_lines(to_table(found));
        return 0;
    });
}
