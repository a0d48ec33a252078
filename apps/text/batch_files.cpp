#include "calm/sample/stop_strings.hpp"
#include "calm/train/detail/throughput.hpp"
#include "program.hpp"
#include "text/batch.hpp"
#include "text/text_output.hpp"

namespace calm::apps {

int answer_batch(generate_options const& o, tokenizer const& tokenizer, index_t K, generation_unit unit,
                 write_texts const& write, index_t positions) {
    prompt_source in(o.jsonl, longest_batch_line);
    text_output out(o.out);
    stop_strings const stops(o.stop);
    double const start = steady_seconds();
    auto const count = answer_lines(
        in, tokenizer, K, write, [&](std::string const& line) { out.put(line); }, positions, o.max_tokens, stops);
    if (count.lines == 0) in.fail_as_empty("expected lines {\"id\": ..., \"prompt\": \"...\"}");
    out.close();
    log_line(statistics(count.texts, steady_seconds() - start, unit));
    if (count.bad == 0) return 0;
    log_line(sentence(count.bad, " of ", count.lines, " lines were bad: their answers have an \"error\""));
    return static_cast<int>(errc::data);
}

}  // namespace calm::apps
