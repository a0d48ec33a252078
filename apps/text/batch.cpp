#include "text/batch.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "calm/base/quoted.hpp"
#include "calm/text/detail/text_encoding.hpp"
#include "strict_json.hpp"
#include "text/prompt.hpp"

namespace calm::apps {

namespace {

using json = nlohmann::ordered_json;

static_assert(longest_batch_line == longest_json);
constexpr std::size_t lines_at_once = 256;

struct batch_line {
    std::size_t number;   // line number in the file, from 1
    std::uint32_t place;  // index among the non-blank lines, from 0
    std::string id;       // raw JSON, empty if unknown
    std::string prompt;
    index_t max_tokens;
    std::vector<token_id> tokens;
    std::string problem;
};

// Keys that other programs accept to change generation.
constexpr char const* asks_for_more[] = {"best_of",
                                         "echo",
                                         "frequency_penalty",
                                         "logit_bias",
                                         "logprobs",
                                         "messages",
                                         "min_p",
                                         "min_tokens",
                                         "n",
                                         "n_predict",
                                         "presence_penalty",
                                         "repeat_penalty",
                                         "repetition_penalty",
                                         "sampling_params",
                                         "seed",
                                         "stop",
                                         "stop_sequences",
                                         "suffix",
                                         "system",
                                         "temperature",
                                         "top_k",
                                         "top_logprobs",
                                         "top_p",
                                         "max_new_tokens",
                                         "max_completion_tokens"};

// A line's max_tokens, at most that of the command line.
index_t max_tokens_of(nlohmann::json const& object, index_t most) {
    auto const found = object.find("max_tokens");
    if (found == object.end() || found->is_null()) return most;
    bool const fits = found->is_number_unsigned() && found->get<std::uint64_t>() >= 1 &&
                      found->get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    if (!fits)
        throw error(errc::data, sentence("\"max_tokens\": expected a whole number from 1 to ", most,
                                         ", the limit of --max-tokens, found ", in_quotes(found->dump())));
    return found->get<index_t>();
}

void refuse_other_ways(nlohmann::json const& object) {
    for (auto const* const key : asks_for_more)
        if (auto const found = object.find(key); found != object.end() && !found->is_null())
            throw error(errc::data, sentence("the key \"", key,
                                             "\" is not read: expected \"id\", \"prompt\" and \"max_tokens\"; set the "
                                             "rest for all lines by options of generate"));
}

// Parses a line. Throws errc::data.
void read_line(batch_line& line, std::string const& text) {
    if (auto const fault = fault_of_encoding(text); fault && text.size() <= longest_batch_line)
        throw error(errc::data, sentence("byte ", fault->byte, ": ", fault->sentence));
    auto const object = strict_json(text);
    if (!object.is_object()) throw error(errc::data, "expected an object with \"id\" and \"prompt\"");
    auto const id = object.find("id");
    if (id == object.end() || !(id->is_string() || id->is_number()))
        throw error(errc::data, "expected an \"id\" that is a string or a number");
    line.id = raw_value(text, "id");
    auto const prompt = object.find("prompt");
    if (prompt == object.end() || !prompt->is_string())
        throw error(errc::data, "expected a \"prompt\" that is a string");
    line.prompt = prompt->get<std::string>();
    line.max_tokens = max_tokens_of(object, line.max_tokens);
    refuse_other_ways(object);
}

batch_line line_of(std::string const& text, std::size_t number, std::uint32_t place, tokenizer const& tokenizer,
                   index_t K, index_t positions, index_t max_tokens) {
    batch_line line{number, place, {}, {}, max_tokens, {}, {}};
    try {
        read_line(line, text);
        line.tokens = prompt_tokens(line.prompt, tokenizer, K, positions);
    } catch (error const& wrong) {
        line.problem = wrong.what();
    }
    return line;
}

// Adds the text to `all`.
std::string answer_of(batch_line const& line, generation_result made, tokenizer const& tokenizer,
                      stop_strings const& stops, generation_statistics& all) {
    if (auto const most = static_cast<std::size_t>(line.max_tokens); made.tokens.size() > most) {
        made.tokens.resize(most);
        made.stopped_at_eos = false;
    }
    auto const shown = end_at_stop(made, tokenizer, stops);
    all.add(made, shown.stop != nullptr);
    bool const stopped = made.stopped_at_eos || shown.stop != nullptr;
    auto const rest = json_line(json{{"prompt", line.prompt},
                                     {"text", shown.text},
                                     {"tokens", made.tokens.size()},
                                     {"patches", made.patches},
                                     {"draws", made.draws},
                                     {"stopped_at_eos", made.stopped_at_eos},
                                     {"finish_reason", stopped ? "stop" : "length"},
                                     {"stop_reason", shown.stop != nullptr ? json(*shown.stop) : json()}});
    return "{\"id\":" + line.id + "," + rest.substr(1);
}

std::string refusal_of(batch_line const& line) {
    auto const id = line.id.empty() ? "" : "\"id\":" + line.id + ",";
    return "{\"line\":" + std::to_string(line.number) + "," + id + json_line(json{{"error", line.problem}}).substr(1);
}

// Generates consecutive valid lines together, since their numbers are consecutive too.
void answer(std::span<batch_line> lines, tokenizer const& tokenizer, stop_strings const& stops,
            write_texts const& write, std::function<void(std::string const&)> const& put, generation_statistics& all) {
    for (std::size_t at = 0; at < lines.size();) {
        if (!lines[at].problem.empty()) {
            put(refusal_of(lines[at++]) + "\n");
            continue;
        }
        std::vector<std::vector<token_id>> prompts;
        for (auto end = at; end < lines.size() && lines[end].problem.empty(); ++end)
            prompts.push_back(std::move(lines[end].tokens));
        auto const made = write(prompts, lines[at].place);
        for (auto const& text : made) put(answer_of(lines[at++], text, tokenizer, stops, all) + "\n");
    }
}

}  // namespace

batch_count answer_lines(prompt_source& in, tokenizer const& tokenizer, index_t K, write_texts const& write,
                         std::function<void(std::string const&)> const& put, index_t positions, index_t max_tokens,
                         stop_strings const& stops) {
    batch_count count;
    std::vector<batch_line> lines;
    auto const answer_all = [&] {
        answer(lines, tokenizer, stops, write, put, count.texts);
        lines.clear();
    };
    for (std::string text; in.next(text);) {
        auto const place = static_cast<std::uint32_t>(count.lines);
        lines.push_back(line_of(text, in.number(), place, tokenizer, K, positions, max_tokens));
        ++count.lines;
        count.bad += lines.back().problem.empty() ? 0 : 1;
        if (lines.size() == lines_at_once || !in.is_ready()) answer_all();
    }
    answer_all();
    return count;
}

}  // namespace calm::apps
