// Hostile names and values in files, paths, options and variables: the programs show them escaped, so that no terminal
// interprets them and they cannot forge output lines.

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/detail/utf8.hpp"
#include "calm/runs/detail/manifest.hpp"
#include "support/programs.hpp"
#include "support/sentences.hpp"

using calm::test::has;
using calm::test::ran;
using calm::test::run_in;
using calm::test::temporary_folder;

namespace {

// Clears the screen, forges a line, rings the bell, changes the text direction; as bytes and as JSON.
std::string const hostile = "x\x1b[2J\nforged: line\r\x07\x7f\xc2\x9b\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8\xd8\x9c\xff";
std::string const hostile_json = R"(x\u001b[2J\nforged: line\r\u0007\u007f\u009b\u202e\u2066\u2028\u061c)";

// Checks terminal output byte by byte.
void require_harmless(std::string const& text, std::string const& line) {
    for (char const c : text) {
        auto const byte = static_cast<std::uint8_t>(c);
        BOOST_REQUIRE_MESSAGE((byte >= 0x20 && byte != 0x7f) || c == '\n', line << " gives byte " << int{byte});
    }
    for (auto const* const part : {"\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x80\xa8", "\xd8\x9c"})
        BOOST_REQUIRE_MESSAGE(!has(text, part), line << " gives a mark of direction");
    BOOST_REQUIRE_MESSAGE(calm::valid_prefix(text) == text.size(), line << " gives what is no UTF-8");
    BOOST_REQUIRE_MESSAGE(!has("\n" + text, "\nforged"), line << " gives a forged line");
    BOOST_REQUIRE_MESSAGE(text.size() < 20'000, line << " gives " << text.size() << " bytes");
}

// A folder with a tokenizer and an autoencoder trained for one step.
class workshop {
public:
    workshop() {
        BOOST_REQUIRE(run_in(folder, "train tokenizer --vocabulary 300 --data stories:4000 --out words").status == 0);
        auto const trained = run_in(folder, train + "--out ae");
        BOOST_REQUIRE_MESSAGE(trained.status == 0, trained.err);
    }
    ran run(std::string const& line) const {
        auto r = run_in(folder, line);
        require_harmless(r.out, line);
        require_harmless(r.err, line);
        return r;
    }
    inline static std::string const train =
        "train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 64 --steps 1 ";
    temporary_folder folder;
};

workshop const& shop() {
    static workshop const one;
    return one;
}

// The command must show the hostile text escaped, and end with the status.
void shown(std::string const& line, int status) {
    auto const r = shop().run(line);
    BOOST_TEST(r.status == status, line << ": " << r.err);
    BOOST_TEST(has(r.err + r.out, "x\\x1b[2J\\nforged: line\\r\\x07\\x7f\\u009b\\u202e\\u2066\\u2028\\u061c"),
               line << ": " << r.err);
}

std::string quoted(std::string const& word) {
    return "'" + word + "'";
}

std::string changed(std::string text, std::string const& from, std::string const& to) {
    auto const at = text.find(from);
    BOOST_REQUIRE_MESSAGE(at != std::string::npos, from << " is not in " << text);
    return text.replace(at, from.size(), to);
}

}  // namespace

BOOST_AUTO_TEST_CASE(words_of_the_command_line) {
    auto const word = quoted(hostile);
    shown("train " + word, 2);
    shown("train autoencoder " + word, 2);
    shown("train autoencoder " + quoted("--" + hostile) + " 1", 2);
    shown("train autoencoder --steps " + word, 2);
    shown("train autoencoder --schedule " + word, 2);
    shown("train autoencoder --config " + word + " --tokenizer words --data stories:9 --out new", 2);
    shown("train autoencoder --config tiny --tokenizer " + word + " --data stories:9 --out new", 2);
    shown("train tokenizer --vocabulary 300 --data " + word + " --out new", 2);
    shown("train tokenizer --vocabulary 300 --data " + quoted("stories:" + hostile) + " --out new", 2);
    shown("train tokenizer --vocabulary 300 --data stories:9 --holdout " + word + " --out new", 2);
    shown("generate --model ae --sampler " + word, 2);
    for (auto const* const line : {"inspect ", "plot ", "convert --out new --model ",
                                   "evaluate --data stories:9 --model ", "train autoencoder --config-file "})
        shown(line + word, 2);
    shown("inspect " + std::string(100'000, 'y') + word, 2);
}

BOOST_AUTO_TEST_CASE(variables_and_files_of_options) {
    auto const& folder = shop().folder;
    shown("env " + quoted("CALM_" + hostile + "=1") + " train autoencoder", 2);
    shown("env " + quoted("CALM_STEPS=" + hostile) + " train autoencoder", 2);
    shown("env " + quoted("CALM_DATA=[" + hostile) + " train autoencoder", 2);
    for (auto const& text : {"\"" + hostile_json + "\" = 1\n", "[\"" + hostile_json + "\"]\nsteps = 1\n",
                             "steps = \"" + hostile_json + "\"\n", "\"" + hostile_json + "\" = 2020-01-01\n"}) {
        static_cast<void>(folder.with("bad.toml", text));
        shown("train autoencoder --config-file bad.toml", 2);
    }
    for (auto const& text : {"{\"" + hostile_json + "\": 1}", "{\"a\": {\"" + hostile_json + "\": null}}",
                             "{\"" + hostile_json + "\": 1, \"" + hostile_json + "\": 2}"}) {
        static_cast<void>(folder.with("bad.json", text));
        shop().run("train autoencoder --config-file bad.json");
    }
    static_cast<void>(folder.with(hostile + ".toml", "= 1"));
    shown("train autoencoder --config-file " + quoted(hostile + ".toml"), 2);
    // Resolved options are printed as TOML that can be read back, and escaped as well.
    static_cast<void>(folder.with("good.toml", "out = \"" + hostile_json + "\"\n"));
    auto const resolved = shop().run("train autoencoder --config-file good.toml --config tiny --tokenizer words --data "
                                     "stories:9 --print-config >again.toml; cat again.toml");
    BOOST_TEST(has(resolved.out, R"(out = "x\u001b[2J\nforged)"), resolved.out);
    auto const again = shop().run("train autoencoder --config-file again.toml --print-config");
    BOOST_TEST(again.status == 0);
    BOOST_TEST(has(again.out, R"(\u009b\u202e\u2066\u2028\u061c")"), again.out);
}

BOOST_AUTO_TEST_CASE(texts_and_tokenizers) {
    auto const& folder = shop().folder;
    auto const name = hostile + ".jsonl";
    static_cast<void>(
        folder.with(name, "{\"text\": \"Mia was here.\"}\n{\"" + hostile_json + "\": 1}\n" + hostile + "\n"));
    shown("train tokenizer --vocabulary 300 --data " + quoted(name) + " --out new", 4);
    shown("train tokenizer --vocabulary 262 --skip-bad --data " + quoted(name) + " --out " + quoted(hostile + ".model"),
          0);
    static_cast<void>(folder.with("bad.model", hostile));
    shop().run("train autoencoder --config tiny --tokenizer bad.model --data stories:4000 --out new");
    static_cast<void>(folder.with("bad.model", "{\"" + hostile_json + "\": \"" + hostile_json + "\"}"));
    shop().run("train autoencoder --config tiny --tokenizer bad.model --data stories:4000 --out new");
}

// Replaces every string of a config.json, key or value, in turn.
BOOST_AUTO_TEST_CASE(descriptions_of_models) {
    auto const& folder = shop().folder;
    std::filesystem::copy(folder.path("ae"), folder.path("bad"), std::filesystem::copy_options::recursive);
    auto const good = folder.content("ae/config.json");
    std::size_t tried = 0, told = 0;
    for (std::size_t begin = good.find('"'); begin != std::string::npos; ++tried) {
        auto const end = good.find('"', begin + 1);
        auto text = good;
        static_cast<void>(folder.with("bad/config.json", text.replace(begin + 1, end - begin - 1, hostile_json)));
        auto const r = shop().run("inspect bad");
        told += has(r.out + r.err, "\\u202e") ? 1 : 0;
        begin = good.find('"', end + 1);
    }
    BOOST_TEST(tried > 40U);
    BOOST_TEST(told > 5U);
    static_cast<void>(folder.with("bad/config.json", changed(good, "\"stories:4000\"", "\"" + hostile_json + "\"")));
    shown("inspect bad", 0);
    static_cast<void>(
        folder.with("bad/config.json", changed(good, "\"holdout\": \"\"", "\"holdout\": \"" + hostile_json + "\"")));
    shown("evaluate --model bad --data stories:4000 --holdout 2:1", 0);
    static_cast<void>(
        folder.with("bad/config.json", changed(good, "\"mode\": \"padded\"", "\"mode\": \"" + hostile_json + "\"")));
    shown("evaluate --model bad --data stories:4000", 2);
}

BOOST_AUTO_TEST_CASE(files_of_weights) {
    auto const& folder = shop().folder;
    std::filesystem::create_directory(folder.path("weights"));
    static_cast<void>(folder.with("weights/config.json", folder.content("ae/config.json")));
    static_cast<void>(folder.with("weights/tokenizer.model", folder.content("ae/tokenizer.model")));
    auto const good = folder.content("ae/model.safetensors");
    auto const with_header = [&](std::string const& first) {
        std::uint64_t size = 0;
        for (std::size_t i = 0; i < 8; ++i) size |= std::uint64_t{static_cast<std::uint8_t>(good[i])} << (8 * i);
        auto const header = changed(good.substr(8, size), "{", "{" + first);
        std::string length;
        for (std::size_t i = 0; i < 8; ++i) length += static_cast<char>(header.size() >> (8 * i) & 0xffU);
        static_cast<void>(folder.with("weights/model.safetensors", length + header + good.substr(8 + size)));
    };
    with_header("\"" + hostile_json + ".a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},");
    shown("inspect weights", 5);
    shown("convert --model weights --out converted", 5);
    with_header("\"" + hostile_json + "\":{\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[0,0]},");
    shown("inspect weights", 5);
    std::string shape = "1";
    for (int i = 0; i < 1'000'000; ++i) shape += ",1";
    with_header("\"x\":{\"dtype\":\"F32\",\"shape\":[" + shape + "],\"data_offsets\":[0,0]},");
    BOOST_TEST(shop().run("inspect weights").status == 5);  // a short error message, not one of 3 MB
    std::filesystem::remove(folder.path("weights/model.safetensors"));
    auto const with_map = [&](std::string const& entry) {
        static_cast<void>(folder.with("weights/model.safetensors.index.json", "{\"weight_map\":{" + entry + "}}"));
    };
    with_map("\"a\":\"" + hostile_json + "\"");
    shown("inspect weights", 5);
    with_map("\"" + hostile_json + "\":{}");
    shown("inspect weights", 5);
    with_map("\"a\":{\"" + hostile_json + "\":1}");
    BOOST_TEST(has(shop().run("inspect weights").err, "\\u202e"));
}

BOOST_AUTO_TEST_CASE(runs) {
    auto const& folder = shop().folder;
    auto const out = " --out " + quoted(hostile);
    shown(workshop::train + out, 0);
    shown(workshop::train + out, 0);                           // finished
    shown(workshop::train + " --learning-rate 0.1" + out, 2);  // with other settings
    shown(workshop::train + " --dry-run" + out, 0);
    for (auto const* const format : {"svg", "png", "tensorboard"})
        shown("plot " + quoted(hostile) + " --format " + format, 0);
    // A value that the run was started with.
    auto const checkpoint = "ae/checkpoints/step-00000001";
    static_cast<void>(folder.with(std::string(checkpoint) + "/state.json",
                                  changed(folder.content(std::string(checkpoint) + "/state.json"), "\"stories:4000\"",
                                          "\"" + hostile_json + "\"")));
    calm::write_manifest(folder.path(checkpoint));
    shown(workshop::train + "--out ae", 0);
}

BOOST_AUTO_TEST_CASE(plans) {
    auto const& folder = shop().folder;
    std::string const train = "train text --config tiny --data stories:4000 --vocabulary 300 --batch 2 --block 64 "
                              "--autoencoder-batch 64 --autoencoder-steps 1 --steps 1 --out text";
    BOOST_TEST(shop().run(train).status == 0);
    auto const good = folder.content("text/plan.json");
    auto const with = [&](std::string const& from, std::string const& to) {
        static_cast<void>(folder.with("text/plan.json", changed(good, from, to)));
    };
    with("\"as measured with this head\"", "\"" + hostile_json + "\"");
    shown(train, 0);
    shown(train + " --dry-run", 0);
    with("\"learning-rate\": \"0.002\"", "\"learning-rate\": \"" + hostile_json + "\"");
    shown(train, 5);
    with("\"learning-rate\": \"0.002\"", "\"" + hostile_json + "\": \"0.002\"");
    shown(train, 5);
    with("\"stories:4000\"", "\"" + hostile_json + "\"");
    shown(train, 0);
}
