#pragma once
// Where prompts come from: a file, a pipe or standard input. One reader with one rule for all ways in; apps/README.md
// has it.

#include <cstddef>
#include <string>
#include <string_view>

namespace calm::apps {

inline constexpr std::size_t longest_prompt = std::size_t{1} << 20;  // bytes

// A prompt without the mark of UTF-8 that it may begin with. Throws errc::data, naming the source, for bytes that are
// no UTF-8 and for zeros.
std::string checked_prompt(std::string_view text, std::string const& name);

// The lines of a source, or all of it. A mark of UTF-8 at its beginning is dropped, so are CR LF and LF at the ends of
// lines; the last line need not have one. Lines of nothing but spaces and tabs are passed over.
class prompt_source {
public:
    // Opens a file: a regular one, a pipe or a terminal; - is standard input. Of a line that is longer than `longest`
    // bytes no more is kept than tells it. Throws errc::storage for what cannot be read, or may never end (a device).
    explicit prompt_source(std::string const& path, std::size_t longest = longest_prompt);
    // A text, for tests; `name` is what errors call it.
    prompt_source(std::string name, std::string text, std::size_t longest);
    prompt_source(prompt_source const&) = delete;
    prompt_source& operator=(prompt_source const&) = delete;
    ~prompt_source();

    // The next line; false at the end. Throws errc::storage where reading fails, and errc::data where the source begins
    // with the mark of UTF-16 or UTF-32.
    [[nodiscard]] bool next(std::string& line);
    // Whether next() returns without waiting for whoever writes the source.
    [[nodiscard]] bool is_ready() { return advance(false); }
    // The number of the line that was last given, from 1.
    [[nodiscard]] std::size_t number() const { return number_; }

    // All that there is, instead of lines, without the end of the last line. Throws as next(), as checked_prompt(), and
    // errc::data for more than longest_prompt bytes.
    [[nodiscard]] std::string whole();

    [[nodiscard]] std::string const& name() const { return name_; }
    // Throws errc::data: there was no prompt.
    [[noreturn]] void fail_as_empty(std::string const& expected) const;

private:
    // Reads on to the end of a line that is not blank, or of the source; false where that would wait, and must not.
    bool advance(bool may_wait);
    bool can_be_read() const;
    void read_some();
    // Makes a line of what was read of it; false where it is blank.
    bool end_line();

    std::string name_;
    std::size_t longest_;
    int file_ = -1;  // none of a text
    std::string block_;
    std::string_view rest_;  // of the block
    std::string line_;       // read so far
    bool begun_ = false;     // a line
    bool complete_ = false;
    bool ended_ = false;
    std::size_t number_ = 0;
};

}  // namespace calm::apps
