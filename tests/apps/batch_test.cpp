#include <boost/test/unit_test.hpp>

#include "text/batch.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <simdjson.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "calm/text/markov.hpp"
#include "strict_json.hpp"
#include "text/prompt.hpp"
#include "text/text_output.hpp"
#include "text/write_prompts.hpp"

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;

namespace {

// Answers lines with a generator that echoes prompts, and records for each call the number of its first prompt.
struct echo {
    std::vector<std::string> answers;
    std::vector<std::pair<std::uint32_t, std::size_t>> calls;
    batch_count count;

    echo(std::string const& lines, tokenizer const& words = {}, stop_strings const& stops = stop_strings()) {
        prompt_source in("input", lines, longest_batch_line);
        count = answer_lines(
            in, words, 4,
            [this](std::span<std::vector<token_id> const> prompts, std::uint32_t first) {
                calls.emplace_back(first, prompts.size());
                std::vector<generation_result> made;
                for (auto const& prompt : prompts)
                    made.push_back({.tokens = prompt, .stopped_at_eos = true, .patches = 2, .draws = 7});
                return made;
            },
            [this](std::string const& line) { answers.push_back(line); }, 2048, 200, stops);
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_line_has_its_answer) {
    echo const e("{\"id\": \"a\", \"prompt\": \"Mia \\\"was\\\"\", \"more\": 1}\r\n\n{\"id\": 7.5, \"prompt\": \"\"}");
    BOOST_REQUIRE(e.answers.size() == 2U);
    BOOST_TEST(e.answers[0] ==
               "{\"id\":\"a\",\"prompt\":\"Mia \\\"was\\\"\",\"text\":\"Mia \\\"was\\\"\",\"tokens\":9,\"patches\":2,"
               "\"draws\":7,\"stopped_at_eos\":true,\"finish_reason\":\"stop\",\"stop_reason\":null}\n");
    BOOST_TEST(has(e.answers[1], "{\"id\":7.5,\"prompt\":\"\""));
    BOOST_TEST(e.count.lines == 2U);
    BOOST_TEST(e.count.bad == 0U);
    BOOST_TEST(e.count.texts.tokens == 9U);
    BOOST_TEST(e.count.texts.ended == 2U);
}

BOOST_AUTO_TEST_CASE(an_id_comes_back_byte_for_byte) {
    for (std::string const id :
         {"123456789012345678901234567890", "1.10", "-0", "-0.0", "1E+2", "0.1e-400", "18446744073709551616",
          "\"\\u0041\\/\"", "\"\"", "\"},[]{\\\"\\\\\"", "\"id\"", "\"Gr\u00fc\u00dfe\""})
        for (auto const& line :
             {"{\"id\":" + id + ",\"prompt\":\"a\"}", "\t{ \"prompt\" : \"a\" , \"id\" : " + id + " }\r",
              "{\"x\":{\"id\":[1,{\"id\":2}]},\"y\":\"\\\"id\\\":3\",\"z\":[],\"id\":" + id + ",\"prompt\":\"a\"}",
              "{\"\\u0069d\":" + id + ",\"prompt\":\"a\"}"}) {
            BOOST_TEST(has(echo(line).answers.at(0), "{\"id\":" + id + ",\"prompt\":\"a\",\"text\":"), line);
            auto bad = line;
            bad.replace(bad.find("\"a\""), 3, "4");
            BOOST_TEST(has(echo(bad).answers.at(0), "{\"line\":1,\"id\":" + id + ",\"error\":\""), bad);
        }
}

BOOST_AUTO_TEST_CASE(control_characters_are_escaped) {
    std::string const raw = "\x7f \xc2\x9b \xe2\x80\xae \xd8\x9c \xc3\xbc",
                      told = "\\u007f \\u009b \\u202e \\u061c \xc3\xbc";
    echo const e("{\"id\": 1, \"prompt\": \"" + raw + "\"}");
    BOOST_TEST(has(e.answers.at(0), "\"prompt\":\"" + told + "\",\"text\":\"" + told + "\","), e.answers.at(0));
}

BOOST_AUTO_TEST_CASE(a_bad_line_neither_stops_the_batch_nor_shifts_other_lines) {
    std::vector<std::pair<std::string, std::string>> bad{
        {"{\"id\": 1", "invalid JSON"},
        {"[1]", "expected an object"},
        {"{\"prompt\": \"x\"}", "expected an \\\"id\\\""},
        {"{\"id\": null, \"prompt\": \"x\"}", "expected an \\\"id\\\""},
        {"{\"id\": 3, \"prompt\": 4}", "expected a \\\"prompt\\\""},
        {"{\"id\": 3, \"id\": 4, \"prompt\": \"\"}", "twice"},
        {"{\"id\": 3, \"prompt\": \"\xff\"}", "byte 21: invalid UTF-8"},
        {std::string("{\"id\": 3, \"prompt\": \"\0\"}", 24), "byte 21: a zero byte"},
        {"{\"id\": 3, \"prompt\": \"x\", \"stop\": [\"a\"]}", "the key \\\"stop\\\" is not read"},
        {"{\"id\": 3, \"prompt\": \"x\", \"temperature\": 1}", "the key \\\"temperature\\\" is not read"},
        {"{\"id\": 3, \"prompt\": \"x\", \"max_tokens\": 201}",
         "from 1 to 200, the limit of --max-tokens, found '201'"},
        {"{\"id\": 3, \"prompt\": \"x\", \"max_tokens\": 0}", "from 1 to 200"},
        {"{\"id\": 3, \"prompt\": \"x\", \"max_tokens\": -1}", "from 1 to 200"},
        {std::string(100'000, '['), "at most 64 deep"},
        {"{\"id\": 3, \"prompt\": \"" + std::string(longest_json, 'x') + "\"}", "at most 1000000 bytes"},
        {"{\"id\": 3, \"prompt\": " + std::string(900'000, '['), "at most 64 deep"}};
    std::string wide = "{\"id\": 3, \"prompt\": [0";  // a long list must not take more than linear time
    while (wide.size() < 900'000) wide += ",{}";
    bad.emplace_back(wide + "]}", "expected a \\\"prompt\\\"");
    for (auto const& [line, why] : bad) {
        echo const e("{\"id\": 0, \"prompt\": \"a\"}\n\n" + line + "\n{\"id\": 2, \"prompt\": \"b\"}\n");
        BOOST_REQUIRE(e.answers.size() == 3U);
        BOOST_TEST(has(e.answers[1], "{\"line\":3,"), e.answers[1]);
        BOOST_TEST(has(e.answers[1], why), e.answers[1]);
        BOOST_TEST(!has(e.answers[1], "exception"), e.answers[1]);
        BOOST_TEST(has(e.answers[2], "\"text\":\"b\""));
        BOOST_TEST(e.count.bad == 1U);
        // A text is numbered by its line.
        BOOST_TEST((e.calls == std::vector<std::pair<std::uint32_t, std::size_t>>{{0, 1}, {2, 1}}));
    }
    BOOST_TEST(has(echo("{\"id\": \"x\", \"prompt\": 4}").answers[0], "{\"line\":1,\"id\":\"x\",\"error\":"));
}

BOOST_AUTO_TEST_CASE(a_line_may_ask_for_fewer_tokens) {
    echo const e("{\"id\": 1, \"prompt\": \"abcdef\", \"max_tokens\": 4}\n"
                 "{\"id\": 2, \"prompt\": \"abcdef\", \"max_tokens\": 6, \"stop\": null}\n"
                 "{\"id\": 3, \"prompt\": \"abcdef\", \"max_tokens\": null}\n");
    BOOST_REQUIRE(e.answers.size() == 3U);
    BOOST_TEST(has(e.answers[0], "\"text\":\"abcd\",\"tokens\":4,"), e.answers[0]);
    BOOST_TEST(has(e.answers[0], "\"stopped_at_eos\":false,\"finish_reason\":\"length\""));
    for (std::size_t const i : {1U, 2U})
        BOOST_TEST(has(e.answers[i], "\"text\":\"abcdef\",\"tokens\":6,"), e.answers[i]);
    BOOST_TEST(has(e.answers[1], "\"stopped_at_eos\":true"));
}

// A stop string counts only in the text that max_tokens leaves.
BOOST_AUTO_TEST_CASE(an_answer_ends_before_a_stop_string) {
    echo const e("{\"id\": 1, \"prompt\": \"One\\n\\nTwo\"}\n"
                 "{\"id\": 2, \"prompt\": \"One\\n\\nTwo\", \"max_tokens\": 4}\n"
                 "{\"id\": 3, \"prompt\": \"One\"}\n",
                 {}, stop_strings({"\n\n"}));
    BOOST_REQUIRE(e.answers.size() == 3U);
    BOOST_TEST(has(e.answers[0], "\"text\":\"One\",\"tokens\":5,"), e.answers[0]);
    BOOST_TEST(has(e.answers[0], "\"stopped_at_eos\":false,\"finish_reason\":\"stop\",\"stop_reason\":\"\\n\\n\"}"));
    BOOST_TEST(has(e.answers[1], "\"text\":\"One\\n\",\"tokens\":4,"), e.answers[1]);
    BOOST_TEST(has(e.answers[1], "\"finish_reason\":\"length\",\"stop_reason\":null}"), e.answers[1]);
    BOOST_TEST(has(e.answers[2], "\"stopped_at_eos\":true,\"finish_reason\":\"stop\",\"stop_reason\":null}"));
}

// All sources of prompts are read by the same rules.
BOOST_AUTO_TEST_CASE(prompts_are_read_equally_from_every_source) {
    calm::test::temporary_folder const folder;
    auto const with = [&](std::string const& content) {
        auto const path = folder.with("source", content);
        generate_options lines, all;
        lines.prompts_file = path;
        prompt_source source(path), whole(path);
        std::vector<std::string> each;
        for (std::string line; source.next(line);) each.push_back(line);
        prompt_reader reader(lines);
        BOOST_TEST(reader.next(100) == each, boost::test_tools::per_element());
        std::string batch;
        for (std::size_t at = 0; at < content.size();) {  // the lines of `content` as JSON
            auto const end = std::min(content.find('\n', at), content.size());
            auto line = content.substr(at, end - at);
            at = end + 1;
            bool const mark = line.starts_with("\xef\xbb\xbf"), cr = line.ends_with('\r');
            line = line.substr(mark ? 3 : 0, line.size() - (mark ? 3 : 0) - (cr ? 1 : 0));
            if (line.find_first_not_of(" \t") != std::string::npos)
                line = "{\"id\": 1, \"prompt\": " + json_line(nlohmann::json(line)) + "}";
            batch += (mark ? "\xef\xbb\xbf" : "") + line + (cr ? "\r" : "") + (end < content.size() ? "\n" : "");
        }
        echo const e(batch);
        BOOST_REQUIRE(e.answers.size() == each.size());
        for (std::size_t i = 0; i < each.size(); ++i) BOOST_TEST(has(e.answers[i], "\"text\":\"" + each[i] + "\""));
        BOOST_TEST(whole.whole().find("\xef\xbb\xbf") == std::string::npos);
        return each;
    };
    using lines = std::vector<std::string>;
    std::string const mark = "\xef\xbb\xbf";
    for (std::string const& content :
         {std::string("a\nb c\n"), std::string("a\r\nb c\r\n"), mark + "a\nb c\n", std::string("a\nb c"),
          std::string("\n \t\na\n\r\nb c\n\n"), mark + "\n\na\nb c\n"})
        BOOST_TEST(with(content) == (lines{"a", "b c"}), content);
    BOOST_TEST(with(" a \n") == lines{" a "});

    struct bad_source {
        std::string bytes, says;
    };
    using namespace std::string_literals;
    for (auto const& bad : std::vector<bad_source>{{"", "there is no prompt in it"},
                                                   {"\n \r\n", "there is no prompt in it"},
                                                   {"\xff\xfe"
                                                    "a\0\n\0"s,
                                                    "is UTF-16"},
                                                   {"\xfe\xff\0a"s, "is UTF-16"},
                                                   {"\xff\xfe\0\0a\0\0\0"s, "is UTF-32"},
                                                   {"\0\0\xfe\xff\0\0\0a"s, "is UTF-32"},
                                                   {"a\0\n\0"s, "byte 1: a zero byte"},
                                                   {"ab\xe9\n", "byte 2: invalid UTF-8"}}) {
        auto const path = folder.with("source", bad.bytes);
        auto const said = [&](auto const& read) { return calm::test::sentence_of<error>(read); };
        auto const whole = said([&] { static_cast<void>(prompt_source(path).whole()); });
        auto const lines_of_file = said([&] {
            generate_options o;
            o.prompts_file = path;
            static_cast<void>(prompt_reader(o).next(9));
        });
        BOOST_TEST(has(whole, bad.says), whole);
        BOOST_TEST(has(lines_of_file, bad.says), lines_of_file);
        BOOST_TEST(whole.starts_with(path));
        bool const is_of_another_encoding = has(bad.says, "is UTF-");
        auto const batch = said([&] { echo const e(bad.bytes); });
        BOOST_TEST(batch.empty() != is_of_another_encoding);
        if (is_of_another_encoding) BOOST_TEST(has(batch, bad.says), batch);
    }
    BOOST_TEST(has(calm::test::sentence_of<error>([&] { prompt_source const folder_as_file(folder.path("")); }),
                   "expected a file, found a folder"));
    generate_options given;
    given.prompts = {"\xef\xbb\xbf"
                     "a",
                     "b"};
    BOOST_TEST(prompt_reader(given).next(9) == (lines{"a", "b"}));
    given.prompts = {"\xe9"};
    BOOST_TEST(has(calm::test::sentence_of<error>([&] { static_cast<void>(prompt_reader(given).next(9)); }),
                   "--prompt, byte 0: invalid UTF-8"));
}

// A client that waits for each answer before it sends the next line gets its answers.
BOOST_AUTO_TEST_CASE(available_lines_are_answered_before_waiting) {
    int ends[2];
    BOOST_REQUIRE(::pipe(ends) == 0);
    auto const ask = [&](std::string const& text) {
        BOOST_REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    };
    ask("{\"id\": 1, \"prompt\": \"a\"}\n\n{\"id\": 2, \"prompt\": \"b\"}\n{\"id\"");
    std::vector<std::size_t> calls;
    std::size_t answers = 0;
    prompt_source in("/dev/fd/" + std::to_string(ends[0]), longest_batch_line);
    auto const write = [&](std::span<std::vector<token_id> const> prompts, std::uint32_t) {
        calls.push_back(prompts.size());
        return std::vector<generation_result>(prompts.size());
    };
    auto const count = answer_lines(in, {}, 4, write, [&](std::string const&) {
        if (++answers == 2) ask(": 3, \"prompt\": \"c\"}\n");
        if (answers == 3) ::close(ends[1]);
    });
    BOOST_TEST(count.lines == 3U);
    BOOST_TEST((calls == std::vector<std::size_t>{2, 1}));
    ::close(ends[0]);
}

BOOST_AUTO_TEST_CASE(lines_end_with_the_file_or_a_newline) {
    std::string const line = "{\"id\": 0, \"prompt\": \"a\"}";
    for (auto const& lines : {line, line + "\n", "\xef\xbb\xbf" + line + "\r\n\n", "\n\n" + line}) {
        echo const e(lines);
        BOOST_TEST(e.count.lines == 1U);
        BOOST_TEST(e.count.bad == 0U);
    }
    BOOST_TEST(echo("").count.lines == 0U);
}

BOOST_AUTO_TEST_CASE(prompts_that_cannot_begin_a_text_are_bad) {
    echo const e("{\"id\": 1, \"prompt\": \"ABC\"}\n{\"id\": 2, \"prompt\": \"A!CD\"}\n{\"id\": 3, \"prompt\": \"\"}\n"
                 "{\"id\": 4, \"prompt\": \"ABCD\"}\n",
                 tokenizer::of_symbols(markov_alphabet));
    BOOST_REQUIRE(e.answers.size() == 4U);
    BOOST_TEST(e.count.bad == 3U);
    BOOST_TEST(has(e.answers[0], "a multiple of 4"));
    BOOST_TEST(has(e.answers[2], "no BOS"));
    BOOST_TEST(has(e.answers[3], "\"text\":\"ABCD\""));
}

BOOST_AUTO_TEST_CASE(a_prompt_of_more_patches_than_the_model_has_positions_is_bad) {
    auto const line = [](std::size_t id, std::size_t size) {
        return "{\"id\": " + std::to_string(id) + ", \"prompt\": \"" + std::string(size, '!') + "\"}\n";
    };
    echo const e(line(1, 4 * 2048 - 1) + line(2, 4 * 2048));  // with BOS 2048 patches of 4, and one more
    BOOST_REQUIRE(e.answers.size() == 2U);
    BOOST_TEST(e.count.bad == 1U);
    BOOST_TEST(has(e.answers[0], "\"patches\":"));
    BOOST_TEST(
        has(e.answers[1], "{\"line\":2,\"id\":2,\"error\":\"expected a prompt of at most 2048 patches of 4 tokens"));
    BOOST_TEST(has(e.answers[1], "found 2049"));
    BOOST_CHECK_THROW((void)prompt_tokens(std::string(longest_prompt + 1, ' '), tokenizer(), 4, 1'000'000), error);
}

BOOST_AUTO_TEST_CASE(many_lines_keep_their_order_and_numbers) {
    std::string lines;
    for (int i = 0; i < 600; ++i) lines += "{\"id\": " + std::to_string(i) + ", \"prompt\": \"p\"}\n";
    echo const e(lines);
    BOOST_REQUIRE(e.answers.size() == 600U);
    for (std::size_t i = 0; i < 600; ++i)
        BOOST_TEST(e.answers[i].starts_with("{\"id\":" + std::to_string(i) + ","), e.answers[i]);
    std::uint32_t next = 0;
    for (auto const& [first, size] : e.calls) {
        BOOST_TEST(first == next);
        next += static_cast<std::uint32_t>(size);
    }
    BOOST_TEST(e.calls.size() > 1U);
}

BOOST_AUTO_TEST_CASE(an_existing_file_is_not_overwritten) {
    calm::test::temporary_folder const folder;
    auto const there = folder.with("there", "x");
    BOOST_CHECK_THROW(text_output{there}, error);
    BOOST_TEST(folder.content("there") == "x");
    {
        text_output out(folder.path("new"));
        out.put("a\n");
        BOOST_TEST(!std::filesystem::exists(folder.path("new")));
        out.close();
        BOOST_TEST(folder.content("new") == "a\n");
    }
    // Without close() no file is left: half of the answers are no answer.
    { text_output(folder.path("half")).put("a\n"); }
    BOOST_TEST(!std::filesystem::exists(folder.path("half")));
    BOOST_TEST(!std::filesystem::exists(folder.path("half.partial")));
    BOOST_CHECK_THROW(text_output{"/dev/full"}, error);
}

// Prompts are processed in groups, numbered by their place in the file.
BOOST_AUTO_TEST_CASE(prompts_of_a_file_are_written_in_their_order) {
    calm::test::temporary_folder const folder;
    std::string lines, texts;
    for (int i = 1; i <= 600; ++i) {
        auto const prompt = "p" + std::to_string(i);
        lines += prompt + "\n";
        texts.append("=== ").append(std::to_string(i)).append("\n").append(prompt).append(prompt).append("\n");
    }
    std::vector<std::pair<std::uint32_t, std::size_t>> calls;
    auto const write = [&](std::span<std::vector<token_id> const> prompts, std::uint32_t first, token_callback const&) {
        calls.emplace_back(first, prompts.size());
        std::vector<generation_result> made;
        for (auto const& prompt : prompts) made.push_back({.tokens = prompt, .patches = 1});
        return made;
    };
    generate_options o;
    o.prompts_file = folder.with("lines", lines);
    std::fflush(stdout);
    int const own = ::dup(STDOUT_FILENO);
    int const file = ::open(folder.path("written").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ::dup2(file, STDOUT_FILENO);
    int const status = write_prompts(o, {}, 4, generation_unit::patch, write, 100);
    ::dup2(own, STDOUT_FILENO);
    ::close(own);
    ::close(file);
    BOOST_TEST(status == 0);
    BOOST_TEST((folder.content("written") == texts));
    BOOST_TEST((calls == std::vector<std::pair<std::uint32_t, std::size_t>>{{0, 256}, {256, 256}, {512, 88}}));
    // A prompt that is too long, after others.
    static_cast<void>(folder.with("lines", "a\n" + std::string((std::size_t{1} << 20) + 2, 'a') + "\n"));
    auto const said =
        calm::test::sentence_of<error>([&] { write_prompts(o, {}, 4, generation_unit::patch, write, 100); });
    BOOST_TEST(has(said, "lines, line 2: expected a prompt of at most 1 MiB, found more"), said);
}

BOOST_AUTO_TEST_CASE(generated_text_cannot_control_a_terminal) {
    std::string const text = "a\x1b[2J\tb\xe2\x80\xae\n";
    // The bytes that a reader of standard output gets from put().
    auto const read_from = [&](int reader, int writer) {
        std::fflush(stdout);
        int const own = ::dup(STDOUT_FILENO);
        ::dup2(writer, STDOUT_FILENO);
        text_output().put(text);
        ::dup2(own, STDOUT_FILENO);
        ::close(own);
        char got[100];
        auto const size = ::read(reader, got, sizeof got);
        ::close(reader);
        ::close(writer);
        return size < 0 ? std::string() : std::string(got, static_cast<std::size_t>(size));
    };
    int const reader = ::posix_openpt(O_RDWR | O_NOCTTY);
    BOOST_REQUIRE(reader >= 0);
    BOOST_REQUIRE(::grantpt(reader) == 0);
    BOOST_REQUIRE(::unlockpt(reader) == 0);
    int const terminal = ::open(::ptsname(reader), O_RDWR | O_NOCTTY);
    BOOST_TEST(read_from(reader, terminal) == "a\\x1b[2J\tb\\u202e\r\n");  // a terminal ends lines with two bytes
    int ends[2];
    BOOST_REQUIRE(::pipe(ends) == 0);
    BOOST_TEST(read_from(ends[0], ends[1]) == text);
}
