#pragma once
// Zip archives of uncompressed entries, as written by PyTorch; read through the central directory, including zip64.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/io/detail/bounded_reader.hpp"

namespace calm::detail {

// Eight tables of zip's CRC-32, to process eight bytes at a time.
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_crc_tables() {
    std::array<std::array<std::uint32_t, 256>, 8> tables{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t c = i;
        for (int bit = 0; bit < 8; ++bit) c = (c & 1U) != 0 ? 0xEDB88320U ^ (c >> 1) : c >> 1;
        tables[0][i] = c;
    }
    for (std::size_t t = 1; t < 8; ++t)
        for (std::size_t i = 0; i < 256; ++i)
            tables[t][i] = tables[0][tables[t - 1][i] & 0xFFU] ^ (tables[t - 1][i] >> 8);
    return tables;
}

// The CRC-32 of zip and gzip.
inline std::uint32_t crc32_of(std::span<std::byte const> bytes) {
    static constexpr auto tables = make_crc_tables();
    auto const at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
    std::uint32_t crc = ~0U;
    std::size_t i = 0;
    for (; i + 8 <= bytes.size(); i += 8) {
        std::uint32_t const low = crc ^ (at(i) | at(i + 1) << 8 | at(i + 2) << 16 | at(i + 3) << 24);
        crc = tables[7][low & 0xFFU] ^ tables[6][low >> 8 & 0xFFU] ^ tables[5][low >> 16 & 0xFFU] ^
              tables[4][low >> 24] ^ tables[3][at(i + 4)] ^ tables[2][at(i + 5)] ^ tables[1][at(i + 6)] ^
              tables[0][at(i + 7)];
    }
    for (; i < bytes.size(); ++i) crc = tables[0][(crc ^ at(i)) & 0xFFU] ^ (crc >> 8);
    return ~crc;
}

// One entry and the place of its bytes in the file.
struct zip_entry {
    std::string name;                  // of the entry
    std::uint64_t header = 0;          // byte at which its local header begins
    std::uint64_t begin = 0;           // byte at which its content begins
    std::uint32_t crc = 0;             // CRC-32 stated in the archive
    std::span<std::byte const> bytes;  // the content
};

// The entries of an archive in file order. Accepts only what can be verified: entries are not compressed, not encrypted
// and do not overlap, there is nothing between them except data descriptors (repeated sizes), and both headers of an
// entry agree.
class zip_archive {
public:
    // Throws errc::model_file with the path, the byte and the entry. check_contents() checks the contents.
    zip_archive(std::span<std::byte const> bytes, std::string const& path) : reader_(bytes, path) {
        auto const [count, size, offset] = read_end();
        directory_ = offset;
        reader_.seek(offset, "the central directory");
        for (std::uint64_t i = 0; i < count; ++i) entries_.push_back(read_entry());
        if (reader_.position() != offset + size)
            reader_.fail("expected the central directory to end at byte " + std::to_string(offset + size) +
                         ", found its end here; the archive's sizes contradict each other");
        std::sort(entries_.begin(), entries_.end(), [](auto const& a, auto const& b) { return a.header < b.header; });
        for (std::size_t i = 0; i < entries_.size(); ++i)
            if (!index_.emplace(entries_[i].name, i).second)
                fail(entries_[i].header, entries_[i].name, "expected every entry once, found it twice");
        check_entries();
    }

    // In file order.
    [[nodiscard]] std::span<zip_entry const> entries() const noexcept { return entries_; }
    // The entry of a name, or null.
    [[nodiscard]] zip_entry const* find(std::string_view name) const {
        auto const found = index_.find(name);
        return found == index_.end() ? nullptr : &entries_[found->second];
    }

    // Reads every byte once. Throws errc::model_file if a checksum does not match.
    void check_contents() const {
        for (auto const& entry : entries_)
            if (auto const found = crc32_of(entry.bytes); found != entry.crc)
                fail(entry.header, entry.name,
                     "expected contents of CRC-32 " + std::to_string(entry.crc) + ", found " + std::to_string(found) +
                         "; the file is damaged");
    }

private:
    struct end_record {
        std::uint64_t count;
        std::uint64_t size;
        std::uint64_t offset;
    };
    static constexpr std::uint64_t end_size = 22;
    static constexpr std::uint64_t locator_size = 20;
    static constexpr std::uint32_t all_ones = 0xFFFFFFFFU;

    [[noreturn]] void fail(std::uint64_t byte, std::string_view name, std::string const& sentence) const {
        reader_.fail(byte, "entry " + in_quotes(name) + ": " + sentence);
    }
    template <class T> void expect(std::string_view what, T expected, T found) const {
        if (expected != found)
            reader_.fail("expected " + std::string(what) + " " + std::to_string(expected) + ", found " +
                         std::to_string(found));
    }

    // Finds the end record at the end of the file, which a comment may follow, and its zip64 form if there is one.
    end_record read_end() {
        constexpr std::uint64_t longest_comment = 0xFFFF;
        std::uint64_t const size = reader_.size();
        std::uint64_t const last = size < end_size ? 0 : size - end_size;
        std::uint64_t const first = last - std::min(last, longest_comment);
        for (std::uint64_t at = last + 1; size >= end_size && at-- > first;) {
            reader_.seek(at, "the end record");
            if (reader_.little<std::uint32_t>("a signature") != 0x06054B50U) continue;
            reader_.seek(at + end_size - 2, "the comment");
            if (reader_.little<std::uint16_t>("the length of the comment") == size - at - end_size) return read_end(at);
        }
        reader_.fail(size, "expected the end record of a zip archive, found none; the file is cut short, or torch.save "
                           "of PyTorch 1.6 or later did not write it");
    }
    end_record read_end(std::uint64_t at) {
        reader_.seek(at + 4, "the end record");
        expect("disk", 0, int{reader_.little<std::uint16_t>("a disk")});
        expect("disk of the directory", 0, int{reader_.little<std::uint16_t>("a disk")});
        std::uint64_t const here = reader_.little<std::uint16_t>("a count");
        end_record found{reader_.little<std::uint16_t>("a count"), reader_.little<std::uint32_t>("a size"),
                         reader_.little<std::uint32_t>("an offset")};
        expect("entries on this disk", found.count, here);
        std::uint64_t end = at;
        bool wide = false;
        if (at >= locator_size) {
            reader_.seek(at - locator_size, "the zip64 locator");
            wide = reader_.little<std::uint32_t>("a signature") == 0x07064B50U;
        }
        if (wide) {
            auto const narrow = found;
            std::tie(found, end) = read_wide_end(at - locator_size);
            auto const agrees = [](std::uint64_t n, std::uint64_t w, std::uint64_t none) {
                return n == none || n == w;
            };
            if (!agrees(narrow.count, found.count, 0xFFFF) || !agrees(narrow.size, found.size, all_ones) ||
                !agrees(narrow.offset, found.offset, all_ones))
                reader_.fail(at, "expected the end record to agree with its zip64 form, found other numbers");
        }
        auto const stop = checked_add(found.offset, found.size);
        if (!stop || *stop != end)
            reader_.fail(end, "expected the central directory to end here, found an offset of " +
                                  std::to_string(found.offset) + " and a size of " + std::to_string(found.size));
        return found;
    }
    std::pair<end_record, std::uint64_t> read_wide_end(std::uint64_t locator) {
        expect("disk of the zip64 end record", 0U, reader_.little<std::uint32_t>("a disk"));
        auto const at = reader_.little<std::uint64_t>("an offset");
        expect("disks", 1U, reader_.little<std::uint32_t>("a count"));
        reader_.seek(at, "the zip64 end record");
        expect("the signature of the zip64 end record,", 0x06064B50U, reader_.little<std::uint32_t>("a signature"));
        expect("a zip64 end record of size", std::uint64_t{44}, reader_.little<std::uint64_t>("a size"));
        reader_.take(4, "versions");
        expect("disk", 0U, reader_.little<std::uint32_t>("a disk"));
        expect("disk of the directory", 0U, reader_.little<std::uint32_t>("a disk"));
        auto const here = reader_.little<std::uint64_t>("a count");
        end_record const found{reader_.little<std::uint64_t>("a count"), reader_.little<std::uint64_t>("a size"),
                               reader_.little<std::uint64_t>("an offset")};
        expect("entries on this disk", found.count, here);
        expect("the zip64 locator at byte", reader_.position(), locator);
        return {found, at};
    }

    // Reads one header of the central directory, and the local header that it points to.
    zip_entry read_entry() {
        auto const at = reader_.position();
        expect("the signature of an entry,", 0x02014B50U, reader_.little<std::uint32_t>("an entry's signature"));
        reader_.take(4, "versions");
        auto const flags = reader_.little<std::uint16_t>("flags");
        auto const method = reader_.little<std::uint16_t>("a compression method");
        reader_.take(4, "a time");
        zip_entry entry;
        entry.crc = reader_.little<std::uint32_t>("a checksum");
        std::uint64_t stored = reader_.little<std::uint32_t>("a size");
        std::uint64_t size = reader_.little<std::uint32_t>("a size");
        auto const name_size = reader_.little<std::uint16_t>("a length");
        auto const extra_size = reader_.little<std::uint16_t>("a length");
        auto const comment_size = reader_.little<std::uint16_t>("a length");
        auto const disk = reader_.little<std::uint16_t>("a disk");
        reader_.take(6, "attributes");
        entry.header = reader_.little<std::uint32_t>("an offset");
        entry.name = reader_.text(name_size, "a name");
        read_wide(reader_.take(extra_size, "extra fields"), at, entry.name, size, stored, entry.header);
        reader_.take(comment_size, "a comment");
        if (disk != 0) fail(at, entry.name, "expected disk 0, found " + std::to_string(disk));
        if ((flags & 1U) != 0) fail(at, entry.name, "expected an entry that is not encrypted, found one that is");
        if ((flags & ~0x0808U) != 0)
            fail(at, entry.name, "expected flags among 0x0808, found " + std::to_string(flags));
        if (method != 0)
            fail(at, entry.name,
                 "expected a stored entry (method 0), found compression method " + std::to_string(method));
        if (stored != size)
            fail(at, entry.name,
                 "expected equal sizes of a stored entry, found " + std::to_string(stored) + " for " +
                     std::to_string(size) + " bytes");

        auto const next = reader_.position();
        read_local(entry, flags, size);
        reader_.seek(next, "the next entry");
        return entry;
    }

    // Reads sizes that exceed 32 bits from extra field 1.
    void read_wide(std::span<std::byte const> extra, std::uint64_t at, std::string const& name, std::uint64_t& size,
                   std::uint64_t& stored, std::uint64_t& offset) const {
        bounded_reader fields(extra, reader_.path() + ", extra fields of entry " + in_quotes(name));
        bool found = false;
        while (fields.remaining() > 0) {
            auto const kind = fields.little<std::uint16_t>("the kind of an extra field");
            auto const length = fields.little<std::uint16_t>("the length of an extra field");
            bounded_reader field(fields.take(length, "an extra field"), fields.path());
            if (kind != 1) continue;
            if (found) fail(at, name, "expected one zip64 field, found two");
            found = true;
            for (auto* const value : {&size, &stored, &offset})
                if (*value == all_ones) *value = field.little<std::uint64_t>("a size of 64 bits");
        }
        if (!found && (size == all_ones || stored == all_ones || offset == all_ones))
            fail(at, name, "expected a zip64 field with its sizes, found none");
    }

    // With flag 8, sizes and checksum may follow the content instead.
    void read_local(zip_entry& entry, std::uint16_t flags, std::uint64_t size) {
        auto const at = entry.header;
        if (at >= directory_)
            fail(at, entry.name,
                 "expected a local header before the central directory, found byte " + std::to_string(at));
        reader_.seek(at, "a local header");
        if (auto const found = reader_.little<std::uint32_t>("a local header"); found != 0x04034B50U)
            fail(at, entry.name, "expected the signature of a local header, 67324752, found " + std::to_string(found));
        reader_.take(2, "a version");
        bool const later = (flags & 8U) != 0;
        auto const same = [&](std::string_view what, std::uint64_t expected, std::uint64_t found, bool may_be_later) {
            if (found == expected || (may_be_later && later && found == 0)) return;
            if (may_be_later && found == all_ones && what != "checksum") return;  // the size is in an extra field
            fail(at, entry.name,
                 "expected the " + std::string(what) + " of its local header to be " + std::to_string(expected) +
                     ", found " + std::to_string(found));
        };
        same("flags", flags, reader_.little<std::uint16_t>("flags"), false);
        same("method", 0, reader_.little<std::uint16_t>("a method"), false);
        reader_.take(4, "a time");
        same("checksum", entry.crc, reader_.little<std::uint32_t>("a checksum"), true);
        same("stored size", size, reader_.little<std::uint32_t>("a size"), true);
        same("size", size, reader_.little<std::uint32_t>("a size"), true);
        auto const name_size = reader_.little<std::uint16_t>("a length");
        auto const extra_size = reader_.little<std::uint16_t>("a length");
        if (auto const name = reader_.text(name_size, "a name"); name != entry.name)
            fail(at, entry.name, "expected the same name in its local header, found " + in_quotes(name));
        reader_.take(extra_size, "extra fields");
        entry.begin = reader_.position();
        if (entry.begin > directory_ || size > directory_ - entry.begin)
            fail(at, entry.name,
                 "expected " + std::to_string(size) + " bytes of content before the central directory at byte " +
                     std::to_string(directory_) + ", found fewer");
        entry.bytes = reader_.take(size, "the content of entry " + in_quotes(entry.name));
    }

    // Checks that entries fill the file up to the central directory; data descriptors may follow the contents.
    void check_entries() const {
        constexpr std::array<std::uint64_t, 5> descriptors{0, 12, 16, 20, 24};
        std::uint64_t end = 0;
        auto const check = [&](std::uint64_t begin, std::string_view name) {
            if (begin < end) fail(begin, name, "expected entries that do not overlap, found it inside the one before");
            auto const gap = begin - end;
            if (end == 0 ? gap != 0 : std::find(descriptors.begin(), descriptors.end(), gap) == descriptors.end())
                fail(end, name,
                     "expected it right after the entry before, found " + std::to_string(gap) +
                         " bytes that belong to no entry");
        };
        for (auto const& entry : entries_) {
            check(entry.header, entry.name);
            end = entry.begin + entry.bytes.size();
        }
        check(directory_, "central directory");
    }

    bounded_reader reader_;
    std::uint64_t directory_ = 0;
    std::vector<zip_entry> entries_;
    std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace calm::detail
