// Programs with options at their limits and far beyond: an error message with its exit status, or the requested result.
// All of it is fast enough to run under the sanitizers.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/compiled_configuration.hpp"
#include "support/programs.hpp"
#include "support/sentences.hpp"

using calm::test::compiled_configuration;
using calm::test::has;
using calm::test::run_in;
using calm::test::temporary_folder;

BOOST_AUTO_TEST_CASE(programs_plan_or_refuse_whatever_the_size) {
    temporary_folder const folder;
    // Makes the sanitizer's allocator return null when memory is short, as other allocators do.
    auto const run = [&](std::string const& line) {
        return run_in(folder, "export ASAN_OPTIONS=\"allocator_may_return_null=1:$ASAN_OPTIONS\"; " + line);
    };
    auto const config = " --config " + compiled_configuration();
    auto const made =
        run("train tokenizer --vocabulary 300 --data stories:4000 --out words && train autoencoder" + config +
            " --tokenizer words --data stories:4000 --batch 64 --steps 1 --out ae && train calm" + config +
            " --autoencoder ae --data stories:4000 --batch 2 --block 16 --steps 1 --learning-rate 1e-3 --out lm");
    BOOST_REQUIRE_MESSAGE(made.status == 0, made.err);
    // 0 for a plan or a text, 2 for impossible values, 4 for too little text, 7 for too little memory; never another
    // status, and never without a message.
    auto const tried = [&](std::string const& line, std::vector<int> const& allowed) {
        auto r = run(line);
        BOOST_TEST((std::find(allowed.begin(), allowed.end(), r.status) != allowed.end()),
                   line << " ended with " << r.status << ": " << r.err);
        BOOST_TEST(!has(r.err, "unexpected error"), r.err);
        BOOST_TEST((r.status == 0 || r.err.size() > 20), line);
        return r;
    };
    std::string const ae = "train autoencoder --tokenizer words --data stories:4000 --dry-run --out no" + config;
    std::string const calm = "train calm --autoencoder ae --data stories:4000 --dry-run --out no" + config;
    for (auto const* const size : {"--batch 2147483640", "--batch 2147483647", "--batch 4 --accumulation 2147483647",
                                   "--batch 2147483640 --accumulation 536870910"})
        tried(ae + " --steps 1 " + size, {0, 2, 7});
    for (auto const* const size : {"--batch 2147483647 --block 16", "--batch 134217727 --block 16",
                                   "--batch 2147483647 --block 1048576", "--batch 2 --block 1048576"})
        tried(calm + " --steps 1 " + size, {2, 4, 7});
    auto const small = calm + " --batch 2 --block 16 ";
    for (auto const* const most : {"--steps 4294967295", "--minutes 5256000", "--steps 1 --head-samples 4096",
                                   "--steps 1 --head-targets 10000", "--steps 1 --head-beta 1e-300 --learning-rate 10",
                                   "--minutes 2.3e-308", "--steps 1 --keep 100000 --threads 1024",
                                   "--steps 4294967295 --warmup 4294967295", "--steps 1 --holdout 1000000:999999"})
        BOOST_TEST(has(tried(small + most, {0}).out, "memory"), most);
    BOOST_TEST(has(tried(small + "--minutes 1e308", {2}).err, "--minutes: expected a number above 0 and at most"));

    std::string const write = "generate --model lm --prompt Mia --threads 1 ";
    for (auto const* const most : {"144115188075855872", "9223372036854775807"})
        BOOST_TEST(has(tried(write + "--max-tokens " + most, {2}).err, "--max-tokens: expected a whole number from 1"));
    BOOST_TEST(has(tried(write + "--max-tokens 9 --sampler noise --temperature 1e308", {2}).err, "from 0 to 1000"));
    tried(write + "--max-tokens 9 --sampler noise --temperature 1000 --at-once 65536", {0});
    tried(write + "--max-tokens 9 --temperature 1/9223372036854775807", {0});
    // The maximum number of tokens: memory grows only with the generated text, until the reader stops reading.
    BOOST_TEST(has(run(write + "--max-tokens 1073741824 | head -c 300 | wc -c").out, "300"));
}

BOOST_AUTO_TEST_CASE(a_learning_rate_out_of_range_writes_nothing) {
    temporary_folder const folder;
    std::string const train = "train autoencoder --tokenizer words --data stories:4000 --batch 64 --out ae --config " +
                              compiled_configuration();
    auto const refused = run_in(folder, "train tokenizer --vocabulary 300 --data stories:4000 --out words && " + train +
                                            " --steps 3 --learning-rate 1e300");
    BOOST_TEST(refused.status == 2);
    BOOST_TEST(has(refused.err, "--learning-rate: expected a number above 0 and at most 10, found '1e300'"),
               refused.err);
    BOOST_TEST(!std::filesystem::exists(folder.path("ae")));
}
