#include "run/ranks_secret.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"

#ifdef CALM_HAS_OPENSSL
#include "calm/ranks/openssl.hpp"
#endif

namespace calm::apps {

namespace {

constexpr std::size_t least_secret = 16, most_secret = 1024;  // bytes
constexpr char const *secret_variable = "CALM_RANKS_SECRET", *file_variable = "CALM_RANKS_SECRET_FILE",
                     *insecure_variable = "CALM_RANKS_INSECURE";

std::string value_of(char const* name) {
    auto const* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

bool is_set(std::string const& flag) {
    for (auto const* const word : {"true", "1", "yes", "on"})
        if (flag == word) return true;
    for (auto const* const word : {"", "false", "0", "no", "off"})
        if (flag == word) return false;
    throw error(errc::usage, sentence("expected in ", insecure_variable, " true or false, found '", flag, "'"));
}

// Closes a file descriptor at the end of its scope.
struct open_file {
    int number;
    explicit open_file(int opened) : number(opened) {}
    open_file(open_file const&) = delete;
    open_file& operator=(open_file const&) = delete;
    ~open_file() {
        if (number >= 0) ::close(number);
    }
};

// The content of a file without trailing white space; nothing if the file does not exist. The file must belong to this
// user and be inaccessible to others.
std::optional<std::string> secret_in(std::string const& path, std::string const& source) {
    open_file const file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.number < 0 && errno == ENOENT) return std::nullopt;
    require(file.number >= 0, errc::distributed, [&] {
        return sentence("expected the ranks' secret in ", path, " (", source,
                        "), found: ", std::generic_category().message(errno));
    });
    struct stat facts {};
    require(::fstat(file.number, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() &&
                (facts.st_mode & (S_IRWXG | S_IRWXO)) == 0,
            errc::distributed, "expected the ranks' secret in ", path, " (", source,
            "), a file of this user that no one else may read or write: chmod 600 ", path);
    std::array<char, most_secret + 2> text;
    auto const size = ::read(file.number, text.data(), text.size());
    std::string_view found(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    auto const last = found.find_last_not_of(" \t\r\n");
    found = found.substr(0, last == std::string_view::npos ? 0 : last + 1);
    require(found.size() >= least_secret && found.size() <= most_secret, errc::distributed,
            "expected the ranks' secret in ", path, " (", source, "), ", least_secret, " to ", most_secret,
            " bytes, found ", found.size());
    return std::string(found);
}

// The user's configuration folder, or "" if the environment names none.
std::string settings_folder() {
    auto const own = value_of("XDG_CONFIG_HOME"), home = value_of("HOME");
    if (own.starts_with('/')) return own + "/calm";
    return home.starts_with('/') ? home + "/.config/calm" : "";
}

// Creates a new secret unless another process does so first. Readers only ever see a complete file.
void make_secret(std::string const& path) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    std::array<unsigned char, 32> random;
    if (::getentropy(random.data(), random.size()) != 0) return;
    std::string text;
    for (auto const byte : random) append_hex(text, byte, 2);
    text += '\n';
    std::string partial = path + ".XXXXXX";
    open_file const file(::mkostemp(partial.data(), O_CLOEXEC));  // mode 0600
    if (file.number < 0) return;
    if (::write(file.number, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
        ::fsync(file.number) == 0)
        static_cast<void>(::link(partial.c_str(), path.c_str()));
    ::unlink(partial.c_str());
}

tcp_mac_function mac_of_this_program() {
#ifdef CALM_HAS_OPENSSL
    return openssl_mac;
#else
    return nullptr;
#endif
}

}  // namespace

ranks_trust trust_of_ranks() {
    ranks_trust trust;
    auto const given = value_of(secret_variable), path = value_of(file_variable);
    trust.insecure = is_set(value_of(insecure_variable));
    require((given.empty() ? 0 : 1) + (path.empty() ? 0 : 1) + (trust.insecure ? 1 : 0) <= 1, errc::usage,
            "expected at most one of ", secret_variable, ", ", file_variable, " and ", insecure_variable,
            ", found several");
    trust.mac = mac_of_this_program();
    require(trust.mac != nullptr || (given.empty() && path.empty()), errc::usage, "found ",
            given.empty() ? file_variable : secret_variable,
            ", but this program was compiled without OpenSSL, which it needs to check secrets: install libssl-dev, "
            "configure and build again");
    if (trust.insecure || trust.mac == nullptr) return trust;
    require(given.empty() || (given.size() >= least_secret && given.size() <= most_secret), errc::usage, "expected in ",
            secret_variable, " a secret of ", least_secret, " to ", most_secret,
            " bytes, as of `openssl rand -hex 32`, found ", given.size());
    trust.secret = given;
    if (!path.empty()) {
        auto const found = secret_in(path, file_variable);
        require(found.has_value(), errc::distributed, "expected the ranks' secret in ", path, " (", file_variable,
                "), found no such file");
        trust.secret = *found;
    } else if (auto const folder = settings_folder(); given.empty() && !folder.empty()) {
        auto const own = folder + "/ranks-secret";
        std::string const source = "the user's own";
        auto found = secret_in(own, source);
        if (!found) {
            make_secret(own);
            found = secret_in(own, source);
        }
        trust.secret = found.value_or("");
    }
    return trust;
}

}  // namespace calm::apps
