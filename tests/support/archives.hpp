#pragma once
// Zip archives and pickles built by hand: valid ones, which tests then corrupt byte by byte.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/io/detail/zip_archive.hpp"

namespace calm::test {

inline std::string little(std::uint64_t value, std::size_t bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xFFU);
    return text;
}

struct zip_part {
    std::string name;
    std::string content;
};

// An archive of stored (uncompressed) entries; `wide` puts the sizes into zip64 fields and records.
inline std::string zip_of(std::vector<zip_part> const& parts, bool wide = false) {
    std::string file;
    std::string directory;
    for (auto const& [name, content] : parts) {
        auto const at = file.size();
        auto const crc = detail::crc32_of(std::as_bytes(std::span(content)));
        std::string const size = wide ? little(0xFFFFFFFF, 4) : little(content.size(), 4);
        std::string const extra =
            wide ? little(1, 2) + little(24, 2) + little(content.size(), 8) + little(content.size(), 8) + little(at, 8)
                 : "";
        std::string const common = little(0, 2) + little(0, 2) + little(0, 4) + little(crc, 4) + size + size +
                                   little(name.size(), 2);  // flags, method, time, ...
        file += "PK\x03\x04" + little(20, 2) + common + little(extra.size(), 2) + name + extra + content;
        directory += "PK\x01\x02" + little(20, 2) + little(20, 2) + common + little(extra.size(), 2) +
                     std::string(10, '\0') + (wide ? little(0xFFFFFFFF, 4) : little(at, 4)) + name + extra;
    }
    auto const begin = file.size();
    file += directory;
    auto const n = parts.size();
    if (wide) {
        auto const at = file.size();
        file += "PK\x06\x06" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 4) + little(0, 4) +
                little(n, 8) + little(n, 8) + little(directory.size(), 8) + little(begin, 8);
        file += "PK\x06\x07" + little(0, 4) + little(at, 8) + little(1, 4);
    }
    return file + "PK\x05\x06" + little(0, 4) + little(wide ? 0xFFFF : n, 2) + little(wide ? 0xFFFF : n, 2) +
           little(wide ? 0xFFFFFFFF : directory.size(), 4) + little(wide ? 0xFFFFFFFF : begin, 4) + little(0, 2);
}

// Offset of the n-th record of a kind: "PK\x03\x04" is a local header, "PK\x01\x02" a directory entry, "PK\x05\x06" the
// end record.
inline std::size_t record(std::string const& zip, std::string_view signature, int n = 0) {
    auto at = zip.find(signature);
    while (n-- > 0) at = zip.find(signature, at + 1);
    return at;
}
inline std::string patched(std::string file, std::size_t at, std::string_view bytes) {
    return file.replace(at, bytes.size(), bytes);
}

namespace pickled {

inline std::string global(std::string_view module, std::string_view name) {
    return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string text(std::string_view s) {
    return "X" + little(s.size(), 4) + std::string(s);
}
inline std::string integer(std::int64_t n) {
    return "\x8a\x08" + little(static_cast<std::uint64_t>(n), 8);
}
inline std::string tuple(std::vector<std::int64_t> const& numbers) {
    std::string all = "(";
    for (auto const n : numbers) all += integer(n);
    return all + "t";
}
inline std::string const ordered = global("collections", "OrderedDict") + ")R";

struct made_tensor {
    std::string type = "FloatStorage";
    std::string key = "0";
    std::int64_t elements = 6;
    std::int64_t offset = 0;
    std::vector<std::int64_t> shape{2, 3};
    std::vector<std::int64_t> strides{3, 1};

    [[nodiscard]] std::string id() const {
        return "(" + text("storage") + global("torch", type) + text(key) + text("cpu") + integer(elements) + "tQ";
    }
    [[nodiscard]] std::string made() const {
        return global("torch._utils", "_rebuild_tensor_v2") + "(" + id() + integer(offset) + tuple(shape) +
               tuple(strides) + "\x89" + ordered + "tR";
    }
};

// A complete pickle of a dictionary with these items.
inline std::string dictionary(std::string const& items) {
    return "\x80\x02}(" + items + "u.";
}

}  // namespace pickled

// The archive that torch.save writes for a pickle and its storages "0", "1", ...
inline std::vector<zip_part> torch_parts(std::string const& pickle, std::vector<std::string> const& storages) {
    std::vector<zip_part> parts{{"archive/data.pkl", pickle}, {"archive/byteorder", "little"}};
    for (std::size_t i = 0; i < storages.size(); ++i)
        parts.push_back({"archive/data/" + std::to_string(i), storages[i]});
    parts.push_back({"archive/version", "3\n"});
    return parts;
}

}  // namespace calm::test
