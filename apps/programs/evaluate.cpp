// evaluate: scores stored models on held-out text.

#include "calm/runs/model_tokenizer.hpp"
#include "command/command_line.hpp"
#include "comparison.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "registry.hpp"
#include "run/rank_agreement.hpp"
#include "run/ranks.hpp"
#include "stored_work.hpp"
#include "text/text_output.hpp"

namespace calm::apps {

namespace {

int evaluate(evaluate_options options) {
    set_threads_and_timeout(options);
    bool const several = options.models.size() > 1;
    text_output out;
    std::vector<compared_model> all;
    for (auto const& directory : options.models) {
        auto one = options;
        one.model = directory;
        auto model = read_model_on_all_ranks(directory);
        // Of several models only some may need it.
        if (!several || !describes_tokenizer(model)) model.pattern = options.pattern;
        auto const& work = configuration_of(model).on(options.device, options.weights, needed_work::without_training);
        all.push_back({model, evaluate_stored(work, one, model)});
        if (several) log_line("== " + directory);
        if (is_first_rank() && (options.json || !text_output::is_for_a_person()))
            out.put(to_json(all.back().found) + "\n");
        log_lines(to_table(all.back().found));
    }
    if (several) log_lines("\n" + comparison_text(all));
    return 0;
}

}  // namespace

int evaluate_main(int argc, char const* const* argv) {
    return run_program("evaluate", [&] {
        return run_on_ranks("evaluate", [&] {
            auto const options = read_on_all_ranks([&] { return read_options<evaluate_options>(argc, argv); });
            return options ? evaluate(*options) : 0;
        });
    });
}

}  // namespace calm::apps
