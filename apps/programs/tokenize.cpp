// tokenize: shows the tokens of a text.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/command_line.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "registry.hpp"
#include "strict_json.hpp"
#include "text/prompt_source.hpp"
#include "text/text_data.hpp"
#include "text/text_output.hpp"

namespace calm::apps {

namespace {

// Reads the vocabulary of a file or of a model's directory.
calm::tokenizer tokenizer_at(std::string const& path) {
    return std::filesystem::is_directory(path) ? tokenizer_of(opened_model(path)) : tokenizer_named(path);
}

// The tokens of one text in one of the formats of --format.
std::string printed(calm::tokenizer const& tokenizer, std::string_view text, std::string const& format) {
    auto const ids = tokenizer.encode(text);
    if (format == "json") {
        nlohmann::ordered_json line{{"ids", ids}, {"tokens", nlohmann::json::array()}};
        for (auto const id : ids) line["tokens"].push_back(tokenizer.bytes(id));
        return json_line(line) + "\n";
    }
    std::string lines;
    for (auto const id : ids)
        lines += format == "ids" ? (lines.empty() ? "" : " ") + std::to_string(id)
                                 : std::to_string(id) + "\t" + calm::in_quotes(tokenizer.bytes(id), '"') + "\n";
    return format == "ids" ? lines + "\n" : lines;
}

}  // namespace

int tokenize_main(int argc, char const* const* argv) {
    return run_program("tokenize", [&] {
        auto const options = read_tokenize(argc, argv);
        if (!options) return 0;
        auto const tokenizer = tokenizer_at(options->tokenizer);
        text_output out;
        auto const texts = options->texts.empty() ? std::vector<std::string>{"-"} : options->texts;
        for (auto const& text : texts)
            out.put(printed(tokenizer, text == "-" ? prompt_source("-").whole() : checked_prompt(text, "--text"),
                            options->format));
        return 0;
    });
}

}  // namespace calm::apps
