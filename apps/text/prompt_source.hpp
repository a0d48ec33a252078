#pragma once
// Reads prompts from a file, a pipe or standard input, by the rule in apps/README.md.

#include <cstddef>
#include <string>
#include <string_view>

namespace calm::apps {

inline constexpr std::size_t longest_prompt = std::size_t{1} << 20;  // bytes

// Removes a leading UTF-8 byte order mark. Throws errc::data, naming the source, for zero bytes and invalid UTF-8.
std::string checked_prompt(std::string_view text, std::string const& name);

// Reads a source line by line, or as a whole. Drops a leading UTF-8 byte order mark, and CR LF or LF at line ends; the
// last line need not have one. Skips lines of only spaces and tabs.
class prompt_source {
public:
    // Opens a regular file, a pipe or a terminal; - is standard input. Keeps just enough of a line longer than
    // `longest` bytes to detect it. Throws errc::storage for a source that cannot be read or may never end (a device).
    explicit prompt_source(std::string const& path, std::size_t longest = longest_prompt);
    // A text, for tests; messages call it `name`.
    prompt_source(std::string name, std::string text, std::size_t longest);
    prompt_source(prompt_source const&) = delete;
    prompt_source& operator=(prompt_source const&) = delete;
    ~prompt_source();

    // Reads the next line; false at the end. Throws errc::storage if reading fails, and errc::data if the source begins
    // with a UTF-16 or UTF-32 byte order mark.
    [[nodiscard]] bool next(std::string& line);
    // Whether next() returns without waiting for input.
    [[nodiscard]] bool is_ready() { return advance(false); }
    // The number of the last returned line, from 1.
    [[nodiscard]] std::size_t number() const { return number_; }

    // The whole source as one prompt, without its last line end. Throws as next() and checked_prompt() do, and
    // errc::data for more than longest_prompt bytes.
    [[nodiscard]] std::string whole();

    [[nodiscard]] std::string const& name() const { return name_; }
    // Throws errc::data for a source without a prompt.
    [[noreturn]] void fail_as_empty(std::string const& expected) const;

private:
    // Reads up to the end of a non-blank line or of the source. Returns false if that would wait and may_wait is false.
    bool advance(bool may_wait);
    bool can_be_read() const;
    void read_some();
    // Completes the current line; false if it is blank.
    bool end_line();

    std::string name_;
    std::size_t longest_;
    int file_ = -1;  // -1 for a text
    std::string block_;
    std::string_view rest_;  // unread part of the block
    std::string line_;       // incomplete line
    bool begun_ = false;     // a line has begun
    bool complete_ = false;
    bool ended_ = false;
    std::size_t number_ = 0;
};

}  // namespace calm::apps
