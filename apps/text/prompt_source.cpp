#include "text/prompt_source.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/text/detail/text_encoding.hpp"

namespace calm::apps {

namespace {

constexpr std::size_t block_size = std::size_t{64} << 10;
constexpr char const* too_long = "expected a prompt of at most 1 MiB, found more: shorten it";
constexpr char const* standard_input = "standard input";

[[noreturn]] void fail_as_unreadable(std::string const& name) {
    auto const why = std::generic_category().message(errno);
    throw error(errc::storage, name, "", "cannot be read: " + why);
}

// Opens a file, a pipe or a terminal. Waits only for the writer of a pipe.
int opened(std::string const& path) {
    struct stat facts {};
    bool const is_pipe = ::stat(path.c_str(), &facts) == 0 && S_ISFIFO(facts.st_mode);
    int const flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | (is_pipe ? 0 : O_NONBLOCK);
    int const file = uninterrupted([&] { return ::open(path.c_str(), flags); });
    if (file < 0) fail_as_unreadable(path);
    bool const known = ::fstat(file, &facts) == 0;
    if (known && (S_ISREG(facts.st_mode) || S_ISFIFO(facts.st_mode) || ::isatty(file) == 1)) {
        static_cast<void>(::fcntl(file, F_SETFL, O_RDONLY));  // later reads may block
        return file;
    }
    ::close(file);
    throw error(errc::storage, path, "",
                known && S_ISDIR(facts.st_mode) ? "expected a file, found a folder"
                                                : "expected a file, a pipe or a terminal, found another device");
}

}  // namespace

std::string checked_prompt(std::string_view text, std::string const& name) {
    if (auto const fault = fault_of_source(text))
        throw error(errc::data, name, sentence("byte ", fault->byte), fault->sentence);
    if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
    return std::string(text);
}

prompt_source::prompt_source(std::string const& path, std::size_t longest) :
    name_(path == "-" ? standard_input : path), longest_(longest), file_(path == "-" ? STDIN_FILENO : opened(path)) {}

prompt_source::~prompt_source() {
    if (file_ > STDIN_FILENO) ::close(file_);
}

prompt_source::prompt_source(std::string name, std::string text, std::size_t longest) :
    name_(std::move(name)), longest_(longest), block_(std::move(text)), rest_(block_), ended_(true) {}

bool prompt_source::can_be_read() const {
    struct pollfd one {
        file_, POLLIN, 0
    };
    return uninterrupted([&] { return ::poll(&one, 1, 0); }) != 0;
}

void prompt_source::read_some() {
    block_.resize(block_size);
    auto const count = uninterrupted([&] { return ::read(file_, block_.data(), block_.size()); });
    if (count < 0) fail_as_unreadable(name_);
    ended_ = count == 0;
    rest_ = std::string_view(block_).substr(0, static_cast<std::size_t>(count));
}

bool prompt_source::end_line() {
    if (++number_ == 1) {
        if (auto const fault = mark_of_other_encoding(line_))
            throw error(errc::data, name_, sentence("byte ", fault->byte), fault->sentence);
        if (line_.starts_with(byte_order_mark)) line_.erase(0, byte_order_mark.size());
    }
    if (line_.ends_with('\r')) line_.pop_back();
    begun_ = false;
    complete_ = line_.find_first_not_of(" \t\r") != std::string::npos;
    if (!complete_) line_.clear();
    return complete_;
}

bool prompt_source::advance(bool may_wait) {
    while (!complete_) {
        if (rest_.empty()) {
            if (ended_) {
                if (begun_) end_line();
                return true;
            }
            if (!may_wait && !can_be_read()) return false;
            read_some();
            continue;
        }
        begun_ = true;
        auto const end = rest_.find('\n');
        auto const part = rest_.substr(0, end);
        std::size_t const most = longest_ + 2;  // one byte too many, and a carriage return
        line_ += part.substr(0, most - std::min(most, line_.size()));
        rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
        if (end != std::string_view::npos) end_line();
    }
    return true;
}

bool prompt_source::next(std::string& line) {
    advance(true);
    if (!std::exchange(complete_, false)) return false;
    line = std::exchange(line_, {});
    return true;
}

std::string prompt_source::whole() {
    std::string text(std::exchange(rest_, {}));
    std::size_t constexpr most = longest_prompt + 5;  // plus a byte order mark and a line end
    while (!ended_ && text.size() <= most) {
        read_some();
        text += rest_;
    }
    rest_ = {};
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    if (text.size() > longest_prompt + byte_order_mark.size()) throw error(errc::data, name_, "", too_long);
    text = checked_prompt(text, name_);
    if (text.size() > longest_prompt) throw error(errc::data, name_, "", too_long);
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) fail_as_empty("expected a text");
    return text;
}

void prompt_source::fail_as_empty(std::string const& expected) const {
    throw error(errc::data, name_, "", "there is no prompt in it: " + expected);
}

}  // namespace calm::apps
