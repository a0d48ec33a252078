// tokenize: shows the tokens of a text, or writes them as a file.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/command_line.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "registry.hpp"
#include "run/text_record.hpp"
#include "stored_work.hpp"
#include "strict_json.hpp"
#include "text/prompt_source.hpp"
#include "text/text_data.hpp"
#include "text/text_output.hpp"
#include "text/token_array.hpp"

namespace calm::apps {

namespace {

// The tokenizer in a directory: of the model there or, in a run of `train`, of its model or of the run itself, which
// has it before there is a model.
calm::tokenizer tokenizer_in(std::string const& directory, std::string const& pattern) {
    auto const model = stage_in(directory, model_stage);
    auto const config = in_directory(whole_directory(model), config_file);
    if (calm::is_there(config)) {
        auto opened = opened_model(model);
        opened.pattern = pattern;
        return load_tokenizer(opened);
    }
    auto const lines = in_directory(directory, "tokenizer.model");
    auto const json = in_directory(directory, "tokenizer.json");
    for (auto const& path : {lines, json})
        if (calm::is_there(path)) return tokenizer_named(path, pattern);
    throw error(errc::tokenizer, directory, "",
                "expected a tokenizer, found none of " + config + ", " + lines + " and " + json +
                    ": give a tokenizer's file, a model's directory, or the --out of train once its tokenizer or "
                    "first checkpoint is written");
}

// Reads the vocabulary of a file or of a directory.
calm::tokenizer tokenizer_at(std::string const& path, std::string const& pattern) {
    return std::filesystem::is_directory(path) ? tokenizer_in(path, pattern) : tokenizer_named(path, pattern);
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

// The ids of each text, and the latent vectors of its patches (P, L), as JSON.
std::string printed_latents(tokenize_options const& o, calm::tokenizer const& tokenizer,
                            std::vector<std::string> const& texts) {
    require(std::filesystem::is_directory(o.tokenizer), errc::usage,
            "--format latents: expected the directory of a model, found the file ", o.tokenizer);
    auto const stored = opened_model(stage_in(o.tokenizer, model_stage));
    // Before its sizes may be compiled.
    require(!is_autoregressive(stored), errc::config, stored.directory,
            ": expected a CALM or an autoencoder, found an autoregressive model, which has no latent vectors");
    std::vector<std::vector<token_id>> ids;
    for (auto const& text : texts) ids.push_back(tokenizer.encode(text));
    auto const& work = configuration_of(stored).on({}, held_weights::f32, needed_work::generation);
    auto const latents = latents_of_texts(work, stored, tokenizer, ids);
    auto const L = static_cast<std::size_t>(stored.sizes.autoencoder.latent_size);
    std::string lines;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        nlohmann::ordered_json line{
            {"ids", ids[i]}, {"patch_size", stored.sizes.autoencoder.patch_size}, {"latents", nlohmann::json::array()}};
        for (std::size_t at = 0; at < latents[i].size(); at += L)
            line["latents"].push_back(std::span(latents[i]).subspan(at, L));
        lines += json_line(line) + "\n";
    }
    return lines;
}

}  // namespace

int tokenize_main(int argc, char const* const* argv) {
    return run_program("tokenize", [&] {
        auto const options = read_options<tokenize_options>(argc, argv);
        if (!options) return 0;
        auto const tokenizer = tokenizer_at(options->tokenizer, options->pattern);
        if (!options->out.empty()) {
            auto const text = training_text(options->data, tokenizer, data_seed_of(options->data));
            write_token_array(text, options->out);
            log_line(
                sentence("wrote ", options->out, ": ", text.tokens(), " tokens of ", text.documents(), " documents"));
            return 0;
        }
        text_output out;
        auto texts = options->texts.empty() ? std::vector<std::string>{"-"} : options->texts;
        for (auto& text : texts) text = text == "-" ? prompt_source("-").whole() : checked_prompt(text, "--text");
        if (options->format == "latents") {
            out.put(printed_latents(*options, tokenizer, texts));
            return 0;
        }
        for (auto const& text : texts) out.put(printed(tokenizer, text, options->format));
        return 0;
    });
}

}  // namespace calm::apps
