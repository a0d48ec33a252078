#include "text/write_prompts.hpp"

#include <string>

#include "calm/sample/stop_strings.hpp"
#include "calm/train/detail/throughput.hpp"
#include "program.hpp"
#include "run/report.hpp"
#include "text/prompt.hpp"
#include "text/text_output.hpp"

namespace calm::apps {

namespace {

constexpr std::size_t prompts_at_once = 256;

// Generates and prints texts for prompts of which the first has index `first` among all, and adds them to `all`.
// Returns the seconds of generation.
double write_some(std::span<std::string const> prompts, std::span<std::vector<token_id> const> begun, std::size_t first,
                  tokenizer const& tokenizer, stop_strings const& stops, write_with_callback const& write,
                  text_output& out, generation_statistics& all) {
    bool const streaming = first == 0 && prompts.size() == 1;
    stopped_text streamed(stops);
    if (streaming) out.put(prompts[0]);
    double const start = steady_seconds();
    auto made = write(begun, static_cast<std::uint32_t>(first), [&](std::size_t, std::span<token_id const> fresh) {
        if (streaming) out.put(streamed.push(tokenizer.decode(fresh)));
    });
    double const seconds = steady_seconds() - start;
    if (streaming) out.put(streamed.flush() + "\n");
    for (std::size_t i = 0; i < made.size(); ++i) {
        auto const shown = end_at_stop(made[i], tokenizer, stops);
        all.add(made[i], shown.stop != nullptr);
        if (!streaming) out.put(formatted("=== %zu\n", first + i + 1) + prompts[i] + shown.text + "\n");
    }
    return seconds;
}

}  // namespace

int write_prompts(generate_options const& o, tokenizer const& tokenizer, index_t K, generation_unit unit,
                  write_with_callback const& write, index_t positions) {
    text_output out;
    stop_strings const stops(o.stop);
    prompt_reader reader(o);
    generation_statistics all;
    double seconds = 0;
    for (std::size_t first = 0;;) {
        auto const prompts = reader.next(prompts_at_once);
        if (prompts.empty()) break;
        std::vector<std::vector<token_id>> begun;
        begun.reserve(prompts.size());
        for (auto const& prompt : prompts) begun.push_back(prompt_tokens(prompt, tokenizer, K, positions));
        seconds += write_some(prompts, begun, first, tokenizer, stops, write, out, all);
        first += prompts.size();
    }
    log_line(statistics(all, seconds, unit));
    return 0;
}

}  // namespace calm::apps
