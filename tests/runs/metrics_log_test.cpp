#include "calm/runs/metrics_log.hpp"

#include <simdjson.h>

#include <boost/test/unit_test.hpp>

#include <sys/stat.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using calm::index_t;
using calm::metrics_log;
using calm::test::temporary_folder;

BOOST_AUTO_TEST_CASE(a_line_is_one_json_object) {
    temporary_folder const folder;
    metrics_log log(folder.path("metrics.jsonl"));
    log.write(
        {{"step", index_t{3}}, {"loss", 0.1}, {"stage", "calm"}, {"done", false}, {"brier", std::vector{0.5, 0.25}}});
    BOOST_TEST(folder.content("metrics.jsonl") ==
               "{\"step\":3,\"loss\":0.1,\"stage\":\"calm\",\"done\":false,\"brier\":[0.5,0.25]}\n");
    log.write({});
    BOOST_TEST(folder.content("metrics.jsonl").ends_with("}\n{}\n"));
}

BOOST_AUTO_TEST_CASE(numbers_are_read_back_unchanged) {
    temporary_folder const folder;
    metrics_log log(folder.path("m"));
    std::vector<double> const values{1.0 / 3, -0.0,          1e-310, 6.02e23,
                                     1e300,   123456789.125, 5e-324, std::numeric_limits<double>::max()};
    log.write({{"values", values}});
    simdjson::dom::parser parser;
    auto const text = folder.content("m");
    std::size_t i = 0;
    for (auto const value : parser.parse(text)["values"].get_array())
        BOOST_TEST(value.get_double().value() == values[i++]);
    BOOST_TEST(i == values.size());
}

BOOST_AUTO_TEST_CASE(whole_numbers_keep_every_digit_and_their_sign) {
    std::vector<calm::metric> const metrics{{"seed", std::numeric_limits<std::uint64_t>::max()},
                                            {"half", std::uint64_t{1} << 63},
                                            {"least", std::numeric_limits<index_t>::min()},
                                            {"one", 1}};
    BOOST_TEST(calm::to_json(metrics) == "{\"seed\":18446744073709551615,\"half\":9223372036854775808,"
                                         "\"least\":-9223372036854775808,\"one\":1}");
}

BOOST_AUTO_TEST_CASE(non_finite_numbers_are_null) {
    double const inf = std::numeric_limits<double>::infinity();
    std::vector<calm::metric> const metrics{{"a", std::nan("")}, {"b", inf}, {"c", std::vector{-inf, 1.0}}};
    BOOST_TEST(calm::to_json(metrics) == "{\"a\":null,\"b\":null,\"c\":[null,1]}");
}

BOOST_AUTO_TEST_CASE(words_are_escaped) {
    std::vector<calm::metric> const metrics{{"a\"b", "line\n\\ \x01 \xc3\xa9"}};
    BOOST_TEST(calm::to_json(metrics) == "{\"a\\\"b\":\"line\\u000a\\\\ \\u0001 \xc3\xa9\"}");
}

BOOST_AUTO_TEST_CASE(lines_are_written_at_once_and_a_later_log_appends) {
    temporary_folder const folder;
    {
        metrics_log log(folder.path("m"));
        log.write({{"a", index_t{1}}});
        BOOST_TEST(folder.content("m") == "{\"a\":1}\n");
    }
    metrics_log(folder.path("m")).write({{"a", index_t{2}}});
    BOOST_TEST(folder.content("m") == "{\"a\":1}\n{\"a\":2}\n");
    auto const path = folder.with("torn", "{\"a\":1}\n{\"a");
    metrics_log(path).write({{"a", index_t{2}}});
    BOOST_TEST(folder.content("torn") == "{\"a\":1}\n{\"a\n{\"a\":2}\n");
}

BOOST_AUTO_TEST_CASE(a_resumed_run_truncates_its_log) {
    temporary_folder const folder;
    auto const path = folder.with("m", "{\"a\":1}\n{\"a\":2}\n{\"a\":3");
    {
        metrics_log log(path, 8);
        BOOST_TEST(log.bytes() == 8U);
        log.write({{"a", index_t{7}}});
        BOOST_TEST(log.bytes() == 16U);
    }
    BOOST_TEST(folder.content("m") == "{\"a\":1}\n{\"a\":7}\n");
    metrics_log(path, 100).write({{"a", index_t{8}}});  // shorter than 100 bytes: all is kept
    BOOST_TEST(folder.content("m") == "{\"a\":1}\n{\"a\":7}\n{\"a\":8}\n");
    metrics_log(path, 0).write({{"a", index_t{9}}});
    BOOST_TEST(folder.content("m") == "{\"a\":9}\n");
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_opened_is_named) {
    temporary_folder const folder;
    auto const sentence =
        calm::test::sentence_of<calm::error>([&] { metrics_log const log(folder.path("no/such/folder")); });
    BOOST_TEST(sentence.starts_with(folder.path("no/such/folder")));
}

// The length that a checkpoint notes is the open file's, even if its name is gone.
BOOST_AUTO_TEST_CASE(the_length_of_a_log_is_known_or_an_error) {
    temporary_folder const folder;
    metrics_log log(folder.path("m"));
    log.write({{"a", index_t{1}}});
    std::filesystem::remove(folder.path("m"));
    BOOST_TEST(log.bytes() == 8U);
}

BOOST_AUTO_TEST_CASE(a_log_is_a_file_and_no_link) {
    temporary_folder const folder;
    auto const complaint = [](std::string const& path) {
        return calm::test::sentence_of<calm::error>([&] { metrics_log const log(path); });
    };
    auto const kept = folder.with("kept", "kept");
    std::filesystem::create_symlink(kept, folder.path("link"));
    BOOST_TEST(complaint(folder.path("link")).find("is a link, which is not followed") != std::string::npos);
    BOOST_TEST(folder.content("kept") == "kept");
    BOOST_REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
    BOOST_TEST(complaint(folder.path("pipe")).ends_with("expected a file, found a pipe"));
}
