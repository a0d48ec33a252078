#pragma once
// Lines of a stream, which may be a pipe.

#include <cstddef>
#include <istream>
#include <string>

namespace calm::apps {

// The next line without its end, or false; of one that is longer than so many bytes no more is kept than tells it.
inline bool next_line(std::istream& in, std::string& text, std::size_t longest) {
    text.clear();
    int constexpr end = std::istream::traits_type::eof();
    int c = in.get();
    bool const any = c != end;
    for (; c != end && c != '\n'; c = in.get())
        if (text.size() <= longest) text += static_cast<char>(c);
    return any;
}

}  // namespace calm::apps
