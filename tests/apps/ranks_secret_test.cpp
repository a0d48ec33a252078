// The secret by which ranks authenticate each other, from the environment or from a file.

#include "run/ranks_secret.hpp"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdlib>
#include <future>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "support/sentences.hpp"
#include "support/skipped.hpp"
#include "support/temporary_folder.hpp"

using calm::errc;
using calm::error;
using calm::apps::ranks_trust;
using calm::apps::trust_of_ranks;
using calm::test::has;
using calm::test::temporary_folder;

namespace {

// Unsets the variables, and restores them at the end of the scope.
class environment {
public:
    environment() {
        for (auto const* const name :
             {"CALM_RANKS_SECRET", "CALM_RANKS_SECRET_FILE", "CALM_RANKS_INSECURE", "HOME", "XDG_CONFIG_HOME"}) {
            auto const* const value = std::getenv(name);
            before_.push_back({name, value != nullptr, value != nullptr ? value : ""});
            ::unsetenv(name);
        }
    }
    environment(environment const&) = delete;
    environment& operator=(environment const&) = delete;
    ~environment() {
        for (auto const& one : before_)
            one.is_set ? ::setenv(one.name.c_str(), one.value.c_str(), 1) : ::unsetenv(one.name.c_str());
    }
    static void set(std::string const& name, std::string const& value) { ::setenv(name.c_str(), value.c_str(), 1); }

private:
    struct variable {
        std::string name;
        bool is_set;
        std::string value;
    };
    std::vector<variable> before_;
};

std::string refused(errc code) {
    try {
        trust_of_ranks();
    } catch (error const& why) {
        BOOST_TEST((why.code() == code));
        return why.what();
    }
    return "";
}

// Skips the case if compiled without OpenSSL.
bool can_prove() {
    bool const can = trust_of_ranks().mac != nullptr;
    if (!can) calm::test::skip("compiled without OpenSSL");
    return can;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_secret_comes_from_the_environment_or_a_file) {
    environment const here;
    if (!can_prove()) return;
    BOOST_TEST(trust_of_ranks().secret == "");  // no home directory
    here.set("CALM_RANKS_SECRET", "0123456789abcdef");
    BOOST_TEST(trust_of_ranks().secret == "0123456789abcdef");
    here.set("CALM_RANKS_SECRET", "short");
    auto const shorter = refused(errc::usage);
    BOOST_TEST(has(shorter, "expected in CALM_RANKS_SECRET a secret of 16 to 1024 bytes"), shorter);
    BOOST_TEST(!has(shorter, "short"), shorter);
    here.set("CALM_RANKS_SECRET", "");

    temporary_folder const folder;
    auto const path = folder.with("secret", "  of a file, 16 or more \n\n");
    here.set("CALM_RANKS_SECRET_FILE", path);
    for (auto const mode : {0644U, 0640U, 0602U}) {
        BOOST_REQUIRE(::chmod(path.c_str(), mode) == 0);
        auto const open = refused(errc::distributed);
        BOOST_TEST(has(open, "a file of this user that no one else may read or write: chmod 600"), open);
    }
    BOOST_REQUIRE(::chmod(path.c_str(), 0600) == 0);
    BOOST_TEST(trust_of_ranks().secret == "  of a file, 16 or more");
    here.set("CALM_RANKS_SECRET", "0123456789abcdef");
    BOOST_TEST(has(refused(errc::usage), "expected at most one of CALM_RANKS_SECRET, CALM_RANKS_SECRET_FILE and"));
    here.set("CALM_RANKS_SECRET", "");
    here.set("CALM_RANKS_SECRET_FILE", path + "-none");
    BOOST_TEST(has(refused(errc::distributed), "found no such file"));
    here.set("CALM_RANKS_SECRET_FILE", "/dev/null");
    BOOST_TEST(has(refused(errc::distributed), "a file of this user"));
}

BOOST_AUTO_TEST_CASE(running_without_a_secret_must_be_requested) {
    environment const here;
    for (std::string const yes : {"1", "true", "yes", "on"}) {
        here.set("CALM_RANKS_INSECURE", yes);
        BOOST_TEST(trust_of_ranks().insecure);
        BOOST_TEST(trust_of_ranks().secret == "");
    }
    for (std::string const no : {"", "0", "false"}) {
        here.set("CALM_RANKS_INSECURE", no);
        BOOST_TEST(!trust_of_ranks().insecure);
    }
    here.set("CALM_RANKS_INSECURE", "perhaps");
    BOOST_TEST(has(refused(errc::usage), "expected in CALM_RANKS_INSECURE true or false, found 'perhaps'"));
}

// The first process that needs the secret creates it; concurrent ones find the same.
BOOST_AUTO_TEST_CASE(a_user_s_own_secret_is_made_once) {
    environment const here;
    if (!can_prove()) return;
    temporary_folder const folder;
    here.set("HOME", folder.path("."));
    std::vector<std::future<std::string>> all;
    for (int i = 0; i < 8; ++i) all.push_back(std::async(std::launch::async, [] { return trust_of_ranks().secret; }));
    std::vector<std::string> found;
    for (auto& each : all) found.push_back(each.get());
    BOOST_TEST(found[0].size() == 64U);
    for (auto const& each : found) BOOST_TEST(each == found[0]);
    struct stat facts {};
    BOOST_REQUIRE(::stat((folder.path(".config/calm/ranks-secret")).c_str(), &facts) == 0);
    BOOST_TEST((facts.st_mode & 0777U) == 0600U);
    here.set("XDG_CONFIG_HOME", folder.path("other"));
    BOOST_TEST(trust_of_ranks().secret != found[0]);
}

// RFC 4231, test case 2.
BOOST_AUTO_TEST_CASE(hmacs_match_the_standard) {
    environment const here;
    if (!can_prove()) return;
    std::string_view const key = "Jefe", message = "what do ya want for nothing?";
    auto const made = trust_of_ranks().mac(std::as_bytes(std::span(key)), std::as_bytes(std::span(message)));
    std::string text;
    for (auto const byte : made) calm::append_hex(text, static_cast<unsigned>(byte), 2);
    BOOST_TEST(text == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}
