// Programs compiled for a GPU that is not present: a clear error and exit status 11 before anything is written. The
// rest of test_cuda_programs is emulated/programs.cpp.
#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include "registry.hpp"
#include "support/programs.hpp"
#include "support/sentences.hpp"

using namespace calm::apps;
using namespace calm::test;

namespace {

// Runs shell lines with the programs that have tiny@cuda.
struct shop {
    temporary_folder folder;

    [[nodiscard]] ran run(std::string const& line) const {
        return run_in(folder, "PATH='" CALM_DEVICE_PROGRAMS_DIR "':$PATH; " + line);
    }
};

std::string why_no_gpu() {
    return calm_named("tiny").work.at("cuda").unavailable_reason(0);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_missing_gpu_is_an_error_before_anything_is_written) {
    shop const here;
    std::string const text = " --data stories:4000 --threads 1";
    auto const made =
        here.run("train text --out run --config tiny --steps 1 --autoencoder-steps 1 --vocabulary 300" + text);
    BOOST_REQUIRE_MESSAGE(made.status == 0, made.err);

    std::vector<std::string> const lines{
        "train text --out other --config tiny --steps 1 --autoencoder-steps 1" + text,
        "train autoencoder --out other --config tiny --steps 1 --tokenizer run/tokenizer.model" + text,
        "train calm --out other --config tiny --steps 1 --autoencoder run/autoencoder" + text,
        "evaluate --model run/model" + text,
        "generate --model run/model --max-tokens 4",
        "sweep --out other --configs tiny --tokenizer run/tokenizer.model --autoencoder-minutes 1 --minutes 1" + text};
    // A number that no machine has; and any device, if there is none.
    for (std::string const device : {"cuda:1023", "cuda"}) {
        if (device == "cuda" && why_no_gpu().empty()) continue;
        for (auto const& line : lines) {
            auto const r = here.run(line + " --device " + device);
            auto const sentence = line.substr(0, line.find(' ')) + ": --device " + device + ": no GPU";
            BOOST_TEST(r.status == 11, line << ": " << r.err);
            BOOST_TEST(r.out.empty(), line << ": " << r.out);
            BOOST_TEST(r.err.starts_with(sentence), line << ": " << r.err);
            BOOST_TEST(r.err.ends_with("; leave --device out to use the cpu\n"), line << ": " << r.err);
            BOOST_TEST(r.err.find('\n') == r.err.size() - 1, line << ": " << r.err);
            BOOST_TEST(here.run("[ ! -e other ]").status == 0, line);
        }
    }
}

BOOST_AUTO_TEST_CASE(auto_reports_its_device_and_why) {
    shop const here;
    auto const made = here.run("train text --out run --config tiny --device auto --steps 1 --autoencoder-steps 1 "
                               "--vocabulary 300 --data stories:4000 --threads 1");
    BOOST_REQUIRE_MESSAGE(made.status == 0, made.err);
    auto const why = why_no_gpu();
    auto const takes = "--device auto uses " + (why.empty() ? std::string("cuda") : "cpu: " + why) + "\n";
    BOOST_TEST(made.err.starts_with(takes), made.err);
    BOOST_TEST(made.err.find(takes, 1) == std::string::npos, made.err);
}
