#pragma once
/// \file
/// Opens a model directory of any sizes: the sizes come from its files. Its code is compiled the first time, in some 20
/// seconds, and kept for later runs. So it needs a compiler and these headers when the program runs; calm::load of
/// calm/language_model.hpp needs neither, but the sizes when the program is compiled. The program itself needs no CUDA
/// for a model on a GPU, which nvcc compiles in some minutes. Not in calm/calm.hpp. Links libpcre2-8, simdjson, zlib
/// and zstd; needs nlohmann-json.
/// \shows{examples/14_open.cpp}

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/evaluate/evaluation.hpp"
#include "calm/io/detail/sizes_source.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/language_model.hpp"
#include "calm/model/heads.hpp"
#include "calm/runs/detail/library_cache.hpp"
#include "calm/runs/detail/loaded_model.hpp"
#include "calm/runs/detail/manifest.hpp"
#include "calm/runs/detail/missing_gpu.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/text/bigram.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/tokenizer.hpp"
#include "calm/version.hpp"

namespace calm {

namespace detail {

#ifdef __clang__
inline constexpr char const* own_compiler = "clang++";
#else
inline constexpr char const* own_compiler = "g++";
#endif

// The folder that holds calm/.
inline std::string own_headers() {
    return std::filesystem::absolute(std::filesystem::path(__FILE__).parent_path().parent_path())
        .lexically_normal()
        .string();
}

}  // namespace detail

/// How calm::open compiles and loads.
struct open_options {
    int threads = 0;             ///< of the CPU; 0: all of the machine's
    std::string device = "cpu";  ///< or cuda or cuda:N, an NVIDIA GPU; or emulated, GPU kernels on the CPU, for tests
    /// Holds weight matrices in int8, a quarter of the memory, of any model: only on the CPU. Results differ slightly.
    bool int8 = false;
    /// g++ or clang++ with the standard library of the program. Empty: the program's own; for cuda nvcc 12.4 or later.
    std::string compiler = {};
    std::string headers = detail::own_headers();  ///< the folder that holds calm/, of the program's version
    std::vector<std::string> options = {"-O2", "-march=native"};  ///< more for the compiler, -I... among them
    std::vector<std::string> libraries = {"-lsimdjson"};          ///< for its linker; for cuda, cuBLASLt is added
    std::function<void(std::string_view)> log = {};               ///< receives a line before anything is compiled
    std::string pattern = {};  ///< as in load_tokenizer: for tiktoken's lines that config.json does not describe
};

/// Settings of any_model::evaluate.
struct evaluation_options {
    index_t block_tokens = 0;  ///< tokens per block, 0: as in training, else 256; BrierLM depends on it
    index_t samples = 8;       ///< N per position, at least 2
    std::uint64_t seed = 1;    ///< of all noise
    index_t positions = 0;     ///< size of a random subset of positions to score; 0: all
};

/// A CALM or an autoregressive model of any sizes, with its tokenizer, on a device. Not thread-safe. May be moved.
class any_model {
public:
    /// Continues a prompt, which may be empty. Equal settings give equal texts. Throws errc::usage for a temperature
    /// that the sampler does not support, or a sampler of patches for an autoregressive model, and errc::non_finite.
    generated_text generate(std::string_view prompt, generation_options const& o = {}) {
        std::vector<std::vector<token_id>> const prompts{tokenizer_.encode(prompt)};
        auto const settings = settings_of(o);
        return detail::text_of_generation(tokenizer_, o, [&](auto const& on_tokens) {
            return model_
                ->generate(prompts, settings,
                           [&](std::size_t, std::span<token_id const> fresh) { return on_tokens(fresh); })
                .front();
        });
    }

    /// For up to `texts` texts that are generated together and begin and end independently, each of at most `capacity`
    /// patches with its prompt. The result has the members of calm::text_batch (sample/text_batch.hpp): free_slots,
    /// empty, begin, end, result, step. The model outlives it. A text's settings are of settings_of(). Throws
    /// errc::usage as calm::text_batch.
    [[nodiscard]] std::unique_ptr<loaded_text_batch> text_batch(index_t texts, index_t capacity,
                                                                step_limits const& limits = limits_of_serving) {
        return model_->text_batch(texts, capacity, limits);
    }

    /// The settings with which generate() would generate. Throws errc::usage as generate().
    [[nodiscard]] any_generation_settings settings_of(generation_options const& o) const {
        require(is_calm() || o.sampler == sampling_rule::adaptive, errc::usage,
                "calm::any_model: expected no sampler for an autoregressive model, which draws single tokens; leave it "
                "out");
        return {.sampler = is_calm() ? any_sampler(sampler::of(o.sampler, o.temperature))
                                     : any_sampler(token_sampler::of(o.temperature)),
                .max_tokens = o.max_tokens,
                .seed = o.seed,
                .ends = stored_.ends};
    }

    /// Scores the model on documents, packed as in its training. Throws errc::data if they fill no block, and
    /// errc::config for a block that is not a number of whole patches, 2 or more.
    evaluation evaluate(std::vector<std::string> const& documents, evaluation_options const& o = {}) {
        auto const& ours = stored_.description.calm;
        index_t const trained = ours && ours->data ? ours->data->block_tokens : 0;
        index_t const block = o.block_tokens > 0 ? o.block_tokens : trained > patch_size() ? trained : 256;
        auto const blocks = blocks_of(documents, static_cast<std::size_t>(block));
        auto const counts = detail::counts_in(stored_);
        auto found = model_->evaluate(
            blocks_in(blocks, static_cast<std::size_t>(block)), counts ? &*counts : nullptr,
            bytes_of_tokens(tokenizer_),
            {.block_tokens = block,
             .samples = o.samples,
             .seed = o.seed,
             .positions = o.positions,
             .sampler = is_calm() ? any_sampler(sampler::unchanged()) : any_sampler(token_sampler::unchanged())},
            nullptr);
        found.mode = mode_name(mode());
        return found;
    }

    [[nodiscard]] calm::tokenizer const& tokenizer() const { return tokenizer_; }  ///< of its text
    /// Its config.json: kind, sizes, how it was trained.
    [[nodiscard]] model_description const& description() const { return stored_.description; }
    /// K, tokens per patch; 1 for an autoregressive model.
    [[nodiscard]] index_t patch_size() const { return is_calm() ? stored_.sizes.autoencoder.patch_size : 1; }

    /// See calm::open.
    [[nodiscard]] static any_model open(std::string const& directory, open_options const& o = {}) {
        auto const gpu = require_device(o.device);
        require(!o.int8 || o.device == "cpu", errc::usage,
                "calm::open: expected the device cpu, which alone computes with weights in int8, found '", o.device,
                "'; leave open_options::int8 or open_options::device out");
        auto stored = read_model_description(detail::directory_of_model(directory));
        stored.pattern = o.pattern;
        require_possible(stored);
        auto tokenizer = load_tokenizer(stored);
        auto const path = compiled_for(stored, o);
        auto* const make = reinterpret_cast<open_function*>(function_of_library(path, "calm_open"));
        std::unique_ptr<loaded_model> model;
        make(stored, tokenizer.vocabulary_size(), tokenizer.specials(),
             {.threads = o.threads, .device = gpu, .in_int8 = o.int8}, model);
        return any_model(std::move(stored), std::move(tokenizer), std::move(model));
    }

private:
    using open_function = void(stored_model const&, index_t vocabulary, special_tokens const&, model_placement const&,
                               std::unique_ptr<loaded_model>& to);

    any_model(stored_model stored, calm::tokenizer tokenizer, std::unique_ptr<loaded_model> model) :
        stored_(std::move(stored)), tokenizer_(std::move(tokenizer)), model_(std::move(model)) {}

    [[nodiscard]] bool is_calm() const { return stored_.description.kind == model_kind::calm; }

    // The number of the GPU, if one is named.
    static std::optional<int> require_device(std::string const& device) {
        if (device == "cpu" || device == "emulated") return std::nullopt;
        std::optional<int> number;
        bool is_gpu = device == "cuda";
        if (constexpr std::string_view numbered = "cuda:"; device.starts_with(numbered)) {
            int n = 0;
            auto const* const end = device.data() + device.size();
            auto const parsed = std::from_chars(device.data() + numbered.size(), end, n);
            is_gpu = parsed.ec == std::errc() && parsed.ptr == end && n >= 0;
            number = n;
        }
        require(is_gpu, errc::usage, "calm::open: expected the device cpu, cuda, cuda:N or emulated, found '", device,
                "'");
        if (auto const missing = missing_gpu(number.value_or(0)); !missing.empty())
            throw error(errc::device, "calm::open: the device " + device + ": " + missing +
                                          "; leave open_options::device out to use the cpu");
        return number;
    }

    static void require_possible(stored_model const& stored) {
        auto const& d = stored.description;
        require(d.kind != model_kind::autoencoder, errc::model_file, stored.directory,
                ": expected a language model, found an autoencoder: give the directory of a CALM or of an "
                "autoregressive model");
        auto lines = impossible_sizes(stored);
        if (d.kind == model_kind::calm)
            for (auto& line : differences(stored.sizes, stored)) lines.push_back(std::move(line));
        if (!lines.empty())
            throw error(errc::config, stored.directory, "",
                        "expected a model that a configuration can describe, found one that none can:", lines);
        if (d.kind != model_kind::calm) return;
        std::string const head(stored.sizes.head.facts->type);
        require(head.starts_with("calm::"), errc::config, stored.directory, ": expected a head of the library, found ",
                head, ": use calm::load with a configuration that has it");
    }

    // The library of a model of these sizes.
    static std::string compiled_for(stored_model const& stored, open_options const& o) {
        auto const found = in_directory(o.headers, "calm/version.hpp");
        if (!is_there(found))
            throw error(errc::config, found, "",
                        "expected the headers of calm, found none: give their folder as open_options::headers, or "
                        "compile the program with an absolute -I");
        bool const is_calm = stored.description.kind == model_kind::calm;
        auto const sizes = without_vocabulary(is_calm ? any_sizes(stored.sizes) : any_sizes(stored.autoregressive()));
        bool const on_gpu = o.device.starts_with("cuda");
        library_source source{.name = "the model " + stored.directory,
                              .text = source_of(sizes, on_gpu ? "cuda" : o.device),
                              .extension = on_gpu ? ".cu" : ".cpp",
                              .command = {!o.compiler.empty() ? o.compiler
                                          : on_gpu            ? "nvcc"
                                                              : detail::own_compiler,
                                          "-std=c++20", "-DNDEBUG"},
                              .links = o.libraries,
                              .key = {}};
        auto& words = source.command;
        words.insert(words.end(), o.options.begin(), o.options.end());
        words.insert(words.end(), {"-I" + o.headers, "-w", "-fPIC", "-shared", "-pthread"});
        if (on_gpu) {
            words.insert(words.end(), {"-forward-unknown-to-host-compiler", "--expt-relaxed-constexpr"});
            if (std::none_of(o.options.begin(), o.options.end(), names_gpu)) words.emplace_back("-arch=native");
            // A program with CUDA has a runtime and kernels of these names too; the library uses its own.
            source.links.insert(source.links.end(), {"-lcublasLt", "-Xlinker=-Bsymbolic-functions",
                                                     "-Xlinker=--exclude-libs=libcudart_static.a"});
        }
        auto depends = source.command;
        depends.insert(depends.end(), source.links.begin(), source.links.end());
        depends.push_back(source.text);
        for (auto const& header : headers_in(o.headers)) depends.push_back(sha256_of_file(header));
        source.key = key_of(depends);
        auto const say = [&](libraries_to_compile const& what) {
            if (!o.log) return;
            for (auto const& path : what.damaged) o.log(path + ": damaged, so it is compiled again");
            o.log("compiling the sizes of " + stored.directory + ", once: later runs load them from " + what.directory);
        };
        return compiled_libraries({source}, say).front();
    }

    // Whether an option of nvcc chooses kinds of GPUs.
    static bool names_gpu(std::string_view option) {
        for (auto const* const start : {"-arch", "--gpu-architecture", "-gencode", "--generate-code"})
            if (option.starts_with(start)) return true;
        return false;
    }

    static std::vector<std::string> headers_in(std::string const& folder) {
        std::vector<std::string> all;
        for (auto const& each : std::filesystem::recursive_directory_iterator(in_directory(folder, "calm")))
            if (each.path().extension() == ".hpp") all.push_back(each.path().string());
        std::sort(all.begin(), all.end());
        return all;
    }

    // Refuses another version of the library or of the standard library: objects would be laid out differently.
    static std::string source_of(any_sizes const& sizes, std::string const& device) {
        auto const size = [](std::string const& type, std::size_t bytes) {
            return " && sizeof(calm::" + type + ") == " + std::to_string(bytes);
        };
        return macros_of_program() + (device == "cpu" ? "" : "#include \"calm/" + device + ".hpp\"\n") +
               "#include \"calm/runs/detail/load_evaluator.hpp\"\n#include \"calm/version.hpp\"\n\n" +
               standard_library_of_program() + "static_assert(CALM_VERSION == " + std::to_string(CALM_VERSION) +
               size("stored_model", sizeof(stored_model)) + size("evaluation", sizeof(evaluation)) +
               size("generation_result", sizeof(generation_result)) + size("bigram_table", sizeof(bigram_table)) +
               ",\n              \"other headers than the program's: build the program again\");\n\nnamespace {\n\n" +
               declaration_of(sizes) +
               "\n}  // namespace\n\nextern \"C\" void calm_open(calm::stored_model const& stored, calm::index_t "
               "vocabulary,\n                          calm::special_tokens const& special, "
               "calm::model_placement const& placement,\n                          "
               "std::unique_ptr<calm::loaded_model>& to) {\n    to = "
               "calm::loaded<sizes, calm::space<calm::" +
               device + ">>(stored, vocabulary, special, placement);\n}\n";
    }
    // Those that change the layout of its strings and vectors.
    static std::string macros_of_program() {
        std::string text;
#ifdef _GLIBCXX_DEBUG
        text += "#define _GLIBCXX_DEBUG\n";
#endif
#ifdef _GLIBCXX_USE_CXX11_ABI
        text += "#define _GLIBCXX_USE_CXX11_ABI " + std::to_string(_GLIBCXX_USE_CXX11_ABI) + "\n";
#endif
        return text;
    }
    static std::string standard_library_of_program() {
        auto const check = [](std::string const& macro, long value) {
            return "#if !defined(" + macro + ") || " + macro + " != " + std::to_string(value) +
                   "\n#error another standard library than the program's: give its compiler to calm::open\n#endif\n";
        };
#if defined(_LIBCPP_VERSION)
        return check("_LIBCPP_VERSION", _LIBCPP_VERSION);
#elif defined(__GLIBCXX__)
        return check("__GLIBCXX__", __GLIBCXX__);
#else
        return {};
#endif
    }

    // How the model's documents are packed.
    [[nodiscard]] packing mode() const {
        auto const& d = stored_.description;
        std::string const stated = d.calm && d.calm->data ? d.calm->data->mode : "";
        if (!is_calm() &&
            (stated == mode_name(packing::unbroken) || (stated.empty() && !tokenizer_.specials().bos_first)))
            return packing::unbroken;
        return packing_of(stated.empty() ? mode_name(packing::padded) : stated, packed_for::language_model,
                          tokenizer_.specials());
    }
    [[nodiscard]] std::vector<token_id> blocks_of(std::vector<std::string> const& documents, std::size_t block) const {
        packing_rule const rule{mode(), static_cast<std::size_t>(patch_size()), 0};
        return evaluation_blocks(corpus_of(documents, tokenizer_), rule, block);
    }

    stored_model stored_;
    calm::tokenizer tokenizer_;
    std::unique_ptr<loaded_model> model_;  // never null
};

/// Opens the directory of a CALM or of an autoregressive model, or the --out of `calm train` that holds one. Compiles
/// code for its sizes, unless CALM_PLUGINS, else ~/.cache/calm, has it.
///
/// Throws errc::model_file if it is not the directory of a language model, and errc::config if it cannot be compiled.
/// Throws errc::device if this machine lacks the device, and errc::usage for an unknown one. Throws errc::storage if
/// the cache cannot be used, errc::tokenizer and errc::memory.
[[nodiscard]] inline any_model open(std::string const& directory, open_options const& o = {}) {
    return any_model::open(directory, o);
}

}  // namespace calm
