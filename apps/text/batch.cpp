#include "text/batch.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "strict_json.hpp"
#include "text/next_line.hpp"
#include "text/prompt.hpp"

namespace calm::apps {

namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t longest = longest_json;  // bytes of a line: far more than the positions of any model
constexpr std::size_t lines_at_once = 256;

struct batch_line {
    std::size_t number;   // in the file, from 1
    std::uint32_t place;  // among those that are not blank, from 0
    std::string id;       // JSON as it came, empty where it is not known
    std::string prompt;
    std::vector<token_id> tokens;
    std::string problem;
};

// Fills in what the line says. Throws errc::data.
void read_line(batch_line& line, std::string const& text) {
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
}

batch_line line_of(std::string const& text, std::size_t number, std::uint32_t place, tokenizer const& words, index_t K,
                   index_t positions) {
    batch_line line{number, place, {}, {}, {}, {}};
    try {
        read_line(line, text);
        line.tokens = prompt_tokens(line.prompt, words, K, positions);
    } catch (error const& wrong) {
        line.problem = wrong.what();
    }
    return line;
}

std::string answer_of(batch_line const& line, generation_result const& made, tokenizer const& words) {
    auto const rest = json_line(json{{"prompt", line.prompt},
                                     {"text", words.decode(made.tokens)},
                                     {"tokens", made.tokens.size()},
                                     {"patches", made.patches},
                                     {"draws", made.draws},
                                     {"stopped_at_eos", made.stopped_at_eos}});
    return "{\"id\":" + line.id + "," + rest.substr(1);
}

std::string refusal_of(batch_line const& line) {
    auto const id = line.id.empty() ? "" : "\"id\":" + line.id + ",";
    return "{\"line\":" + std::to_string(line.number) + "," + id + json_line(json{{"error", line.problem}}).substr(1);
}

// Good lines that follow one another are written together: their numbers follow one another too.
void answer(std::span<batch_line> lines, tokenizer const& words, write_texts const& write,
            std::function<void(std::string const&)> const& put) {
    for (std::size_t at = 0; at < lines.size();) {
        if (!lines[at].problem.empty()) {
            put(refusal_of(lines[at++]) + "\n");
            continue;
        }
        std::vector<std::vector<token_id>> prompts;
        for (auto end = at; end < lines.size() && lines[end].problem.empty(); ++end)
            prompts.push_back(std::move(lines[end].tokens));
        auto const made = write(prompts, lines[at].place);
        for (auto const& text : made) put(answer_of(lines[at++], text, words) + "\n");
    }
}

}  // namespace

batch_count answer_lines(std::istream& in, tokenizer const& words, index_t K, write_texts const& write,
                         std::function<void(std::string const&)> const& put, index_t positions) {
    batch_count count;
    std::vector<batch_line> lines;
    std::size_t number = 0;
    auto const answer_all = [&] {
        answer(lines, words, write, put);
        lines.clear();
    };
    for (std::string text; next_line(in, text, longest);) {
        if (++number == 1 && text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // byte order mark
        if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
        lines.push_back(line_of(text, number, static_cast<std::uint32_t>(count.lines), words, K, positions));
        ++count.lines;
        count.bad += lines.back().problem.empty() ? 0 : 1;
        if (lines.size() == lines_at_once) answer_all();
    }
    answer_all();
    return count;
}

}  // namespace calm::apps
