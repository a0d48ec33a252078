// Speed of tokenising text and of reading documents, in MB/s, on generated stories or --data.
//
//     tokenizer [--vocabulary 512 4096] [--data FILE] [--megabytes 8] [--repeats 5] [--keep DIR] [--json]
//
// Trains vocabularies on the text itself, each of at most the given size. A cold piece cache is new for every document,
// a warm one is shared by all documents. Reads the documents from a .jsonl and from a .txt. --keep stores the
// vocabularies (tokenizer-V.model), their pattern (pattern.txt) and the documents (documents.jsonl) in a folder, to
// repeat the test with another tokenizer.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/text/documents.hpp"
#include "calm/text/stories.hpp"
#include "calm/text/tokenizer.hpp"
#include "machine.hpp"

namespace {

namespace fs = std::filesystem;
using documents = std::vector<std::string>;

struct options {
    std::vector<int> vocabularies{512, 4096};
    std::string data;
    int megabytes = 8;
    int repeats = 5;
    fs::path keep;
    bool json = false;
};

std::size_t bytes_of(documents const& all) {
    std::size_t bytes = 0;
    for (auto const& one : all) bytes += one.size();
    return bytes;
}

// Generated stories up to the wanted bytes, including the story that reaches them, or all documents of --data.
documents documents_of(options const& o) {
    auto const wanted = static_cast<std::size_t>(o.megabytes) * 1000000;
    documents all;
    if (o.data.empty()) {
        std::size_t bytes = 0;
        for (std::uint64_t i = 0; bytes < wanted; ++i) {
            all.push_back(calm::story(1, calm::split::train, i));
            bytes += all.back().size();
        }
    } else {
        std::string document;
        calm::read_documents(o.data, {}, nullptr, [&](std::string_view part, bool ends) {
            document += part;
            if (ends) all.push_back(std::exchange(document, {}));
        });
    }
    return all;
}

std::string json_line(std::string_view text) {
    std::string line = "{\"text\": \"";
    for (char const c : text) {
        if (static_cast<unsigned char>(c) < 0x20) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
            line += escaped;
        } else {
            if (c == '"' || c == '\\') line += '\\';
            line += c;
        }
    }
    return line + "\"}\n";
}

// Repeats f(). It returns a number, so that the compiler cannot remove its work.
template <class F> void report(options const& o, char const* what, int vocabulary, std::size_t bytes, F const& f) {
    std::vector<double> speeds;
    std::size_t volatile used = f();
    for (int i = 0; i < o.repeats; ++i) {
        double const begin = bench::now();
        used = f();
        speeds.push_back(static_cast<double>(bytes) / (bench::now() - begin) / 1e6);
    }
    auto const speed = bench::spread_of(speeds);
    std::printf(o.json ? "{\"work\": \"%s\", \"vocabulary\": %d, \"mb_per_s\": %.3f, \"lowest\": %.3f, "
                         "\"highest\": %.3f, \"bytes\": %zu, \"result\": %zu}\n"
                       : "%-12s vocabulary %5d %8.1f MB/s (%.1f .. %.1f) of %zu bytes (%zu)\n",
                what, vocabulary, speed.median, speed.lowest, speed.highest, bytes, std::size_t{used});
    std::fflush(stdout);
}

// As many tokens as the documents yield, at most `most`.
calm::tokenizer learned(documents const& all, int most) {
    calm::bpe_trainer trainer;
    for (auto const& one : all) trainer.add(one);
    auto const bytes = calm::tokenizer::byte_vocabulary;
    auto const merges = trainer.train(std::max(most, bytes) - bytes).size() - 256;
    return calm::tokenizer::train(trainer, bytes + merges);
}

void encode(options const& o, documents const& all, calm::tokenizer const& words) {
    int const V = words.vocabulary_size();
    report(o, "encode cold", V, bytes_of(all), [&] {
        std::size_t tokens = 0;
        std::vector<calm::token_id> ids;
        for (auto const& one : all) {
            ids.clear();
            words.encode(one, ids);
            tokens += ids.size();
        }
        return tokens;
    });
    report(o, "encode warm", V, bytes_of(all), [&] {
        std::size_t tokens = 0;
        calm::token_stream stream(words);
        std::vector<calm::token_id> ids;
        for (auto const& one : all) {
            ids.clear();
            stream.push(one, ids);
            stream.finish(ids);
            tokens += ids.size();
        }
        return tokens;
    });
}

// Reads the documents from files that it writes to the folder.
void read_files(options const& o, documents const& all, fs::path const& folder) {
    std::string text, lines;
    for (auto const& one : all) {
        text += one + '\n';
        lines += json_line(one);
    }
    for (auto const& [name, content] : {std::pair{"documents.jsonl", &lines}, {"documents.txt", &text}}) {
        auto const path = (folder / name).string();
        calm::replace_file(path, *content);
        report(o, fs::path(name).extension() == ".txt" ? "read .txt" : "read .jsonl", 0, content->size(), [&] {
            std::size_t bytes = 0;
            calm::read_documents(path, {}, nullptr, [&](std::string_view part, bool) { bytes += part.size(); });
            return bytes;
        });
    }
}

// Returns false if an option or a value is unknown.
bool read(options& o, int argc, char** argv) {
    for (int i = 1; i < argc;) {
        std::string_view const option = argv[i++];
        std::vector<std::string> values;
        while (i < argc && !std::string_view(argv[i]).starts_with("--")) values.emplace_back(argv[i++]);
        int const number = values.empty() ? 0 : std::atoi(values[0].c_str());
        if (option == "--json" && values.empty()) {
            o.json = true;
        } else if (option == "--vocabulary" && !values.empty()) {
            o.vocabularies.clear();
            for (auto const& value : values) o.vocabularies.push_back(std::atoi(value.c_str()));
        } else if (values.size() != 1) {
            return false;
        } else if (option == "--data") {
            o.data = values[0];
        } else if (option == "--keep") {
            o.keep = values[0];
        } else if (option == "--megabytes" && number >= 1) {
            o.megabytes = number;
        } else if (option == "--repeats" && number >= 1) {
            o.repeats = number;
        } else {
            return false;
        }
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) try {
    options o;
    if (!read(o, argc, argv)) {
        std::fputs("usage: tokenizer [--vocabulary 512 4096] [--data FILE] [--megabytes 8] [--repeats 5] [--keep DIR] "
                   "[--json]\n",
                   stderr);
        return 2;
    }
    auto const folder =
        o.keep.empty() ? fs::temp_directory_path() / ("calm-tokenizer-" + std::to_string(::getpid())) : o.keep;
    fs::create_directories(folder);
    auto const all = documents_of(o);
    for (int const most : o.vocabularies) {
        auto const words = learned(all, most);
        words.save((folder / ("tokenizer-" + std::to_string(words.vocabulary_size()) + ".model")).string());
        calm::replace_file((folder / "pattern.txt").string(), std::string(words.pattern()));
        encode(o, all, words);
    }
    read_files(o, all, folder);
    if (o.keep.empty()) fs::remove_all(folder);
    return 0;
} catch (std::exception const& wrong) {
    std::fprintf(stderr, "tokenizer: %s\n", wrong.what());
    return 1;
}
