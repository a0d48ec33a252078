#include "text/token_array.hpp"

#include <cstddef>
#include <span>

#include "calm/base/detail/file.hpp"

namespace calm::apps {

namespace {

// numpy.lib.format, version 1.0: the header ends with a newline and fills a multiple of 64 bytes.
std::string npy_header(std::size_t ids) {
    static_assert(sizeof(token_id) == 4);
    std::string text = "{'descr': '<i4', 'fortran_order': False, 'shape': (" + std::to_string(ids) + ",), }";
    constexpr std::size_t before = 10;  // magic, version and the header's length
    text.append((64 - (before + text.size() + 1) % 64) % 64, ' ');
    text += '\n';
    return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(text.size() & 255U) +
           static_cast<char>(text.size() >> 8U) + text;
}

}  // namespace

void write_token_array(corpus const& text, std::string const& path) {
    auto const eos = text.specials().eos;
    replaced_file file(path, if_exists::refuse);
    file.write(npy_header(text.tokens() + (eos >= 0 ? text.documents() : 0)));
    for (std::size_t i = 0; i < text.documents(); ++i) {
        file.write(std::as_bytes(text.document(i)));
        if (eos >= 0) file.write(std::as_bytes(std::span(&eos, 1)));
    }
    file.commit();
}

}  // namespace calm::apps
