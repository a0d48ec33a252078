#pragma once
// Messages whose size or contents another rank decides. As with a file, nothing is trusted before it is checked.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/ranks/detail/setting.hpp"
#include "calm/ranks/process_group.hpp"

namespace calm {

// Builds a message for message_reader.
class message_writer {
public:
    // Adds a number in its memory representation.
    template <class T> void add(T const& value) { add_all(std::span(&value, 1)); }
    // Adds values one after another in their memory representation.
    template <class T> void add_all(std::span<T const> values) {
        static_assert(std::is_trivially_copyable_v<T>);
        auto const bytes = std::as_bytes(values);
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    // Adds the size of a text and the text.
    void add_text(std::string_view text) {
        add(std::uint64_t{text.size()});
        add_all(std::span(text.data(), text.size()));
    }
    [[nodiscard]] std::vector<std::byte> const& bytes() const { return bytes_; }  // so far

private:
    std::vector<std::byte> bytes_;
};

// Reads a message from its beginning. Every member throws errc::distributed for invalid contents; memory never exceeds
// the size of the message.
class message_reader {
public:
    // The bytes outlive it; `what` names them in errors: "the texts of rank 1".
    message_reader(std::span<std::byte const> bytes, std::string what) : left_(bytes), what_(std::move(what)) {}

    // The next number, from `least` to `most`.
    template <std::integral T> T number(char const* name, T least, T most) {
        T value{};
        copy(name, std::span(&value, 1));
        expect(value >= least && value <= most, [&] {
            return std::string(name) + " from " + std::to_string(least) + " to " + std::to_string(most) + ", found " +
                   std::to_string(value);
        });
        return value;
    }
    // The next `count` values, unchecked.
    template <class T> std::vector<T> values(char const* name, std::size_t count) {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool> && !std::is_enum_v<T>);
        expect(count <= left_.size() / sizeof(T), [&] { return too_short(name, count); });
        std::vector<T> all(count);
        copy(name, std::span(all));
        return all;
    }
    // The next numbers, each from `least` to `most`.
    template <std::integral T> std::vector<T> numbers(char const* name, std::size_t count, T least, T most) {
        auto all = values<T>(name, count);
        auto const bad = std::ranges::find_if(all, [&](T value) { return value < least || value > most; });
        expect(bad == all.end(), [&] {
            return std::string(name) + " from " + std::to_string(least) + " to " + std::to_string(most) + ", found " +
                   std::to_string(*bad);
        });
        return all;
    }
    // The next text.
    std::string text(char const* name) {
        auto const behind = left_.size() - std::min(left_.size(), sizeof(std::uint64_t));
        auto const size = number<std::uint64_t>(name, 0, behind);
        auto const bytes = values<char>(name, static_cast<std::size_t>(size));
        return {bytes.begin(), bytes.end()};
    }
    [[nodiscard]] bool at_end() const { return left_.empty(); }  // whether everything was read
    // Throws unless everything was read.
    void require_end() const {
        expect(at_end(), [&] { return "no more bytes, found " + std::to_string(left_.size()); });
    }
    // Throws unless `holds`; expected() completes the words "expected ...".
    template <class Expected> void expect(bool holds, Expected const& expected) const {
        require(holds, errc::distributed, [&] {
            return what_ + ": expected " + expected() +
                   "; do all ranks run the same program with the same options and files?";
        });
    }

private:
    [[nodiscard]] std::string too_short(char const* name, std::size_t count) const {
        return std::to_string(count) + " of " + name + ", found a message that ends after " +
               std::to_string(left_.size()) + " bytes";
    }
    template <class T> void copy(char const* name, std::span<T> to) {
        expect(to.size_bytes() <= left_.size(), [&] { return too_short(name, to.size()); });
        if (!to.empty()) std::memcpy(to.data(), left_.data(), to.size_bytes());
        left_ = left_.subspan(to.size_bytes());
    }

    std::span<std::byte const> left_;
    std::string what_;
};

// One message per rank.
class messages {
public:
    // sizes[r] bytes of rank r, each at most `most`, and in total at most `together`. Throws errc::distributed.
    messages(std::span<std::uint64_t const> sizes, std::uint64_t most,
             std::uint64_t together = std::numeric_limits<std::uint64_t>::max()) {
        for (std::size_t r = 0; r < sizes.size(); ++r) {
            auto const left = std::min(most, together - starts_.back());
            require(sizes[r] <= left, errc::distributed, "rank ", r, ": expected a message of at most ", left,
                    " bytes, found one of ", sizes[r],
                    "; do all ranks run the same program with the same options and files?");
            starts_.push_back(starts_.back() + static_cast<std::size_t>(sizes[r]));
        }
        bytes_.resize(starts_.back());
    }
    // The message of a rank.
    [[nodiscard]] std::span<std::byte const> of(int rank) const {
        auto const r = static_cast<std::size_t>(rank);
        return std::span(bytes_).subspan(starts_[r], starts_[r + 1] - starts_[r]);
    }
    [[nodiscard]] std::span<std::byte> all() { return bytes_; }                       // one after another
    [[nodiscard]] std::span<std::size_t const> starts() const { return starts_; }     // start of each, then the end
    [[nodiscard]] int ranks() const { return static_cast<int>(starts_.size()) - 1; }  // number of ranks
    // Reads rank r's message, which errors call "`what` of rank r".
    [[nodiscard]] message_reader read(int rank, std::string const& what) const {
        return {of(rank), what + " of rank " + std::to_string(rank)};
    }

private:
    std::vector<std::size_t> starts_{0};
    std::vector<std::byte> bytes_;
};

// Gathers one message of each rank on all ranks: each at most `most` bytes, and in total at most `together`. Throws
// errc::distributed for more.
inline messages gather_messages(process_group& ranks, std::span<std::byte const> own, std::uint64_t most,
                                std::uint64_t together = std::numeric_limits<std::uint64_t>::max()) {
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(ranks.ranks()));
    std::uint64_t const size = own.size();
    ranks.all_gather(std::span(&size, 1), std::span(sizes));
    messages all(sizes, most, together);
    ranks.all_gather(own, all.all(), all.starts());
    return all;
}

// Broadcasts a message of rank 0, at most `most` bytes. Throws errc::distributed for more.
inline std::vector<std::byte> broadcast_message(process_group& ranks, std::span<std::byte const> own,
                                                std::uint64_t most) {
    auto const size = ranks.broadcast(std::uint64_t{own.size()});
    require(size <= most, errc::distributed, "rank 0: expected a message of at most ", most, " bytes, found one of ",
            size, "; do all ranks run the same program with the same options and files?");
    std::vector<std::byte> bytes(own.begin(), own.end());
    bytes.resize(static_cast<std::size_t>(size));
    ranks.broadcast(std::span(bytes));
    return bytes;
}

namespace detail {

inline std::vector<std::byte> message_of(std::span<setting const> all) {
    message_writer to;
    for (auto const& one : all) {
        to.add_text(one.name);
        to.add_text(one.value);
    }
    return to.bytes();
}
inline std::vector<setting> settings_in(message_reader from) {
    std::vector<setting> all;
    while (!from.at_end()) {
        auto name = from.text("bytes of a name");
        all.push_back({std::move(name), from.text("bytes of a value")});
    }
    return all;
}

// A value for an error message, from where it begins to differ from `other`.
inline std::string value_beside(std::string const& value, std::string const& other) {
    constexpr std::size_t kept = 20, most = 80;
    auto const same = static_cast<std::size_t>(std::ranges::mismatch(value, other).in1 - value.begin());
    auto const from = same > most ? same - kept : 0;
    return from > 0 ? in_quotes("..." + value.substr(from)) : in_quotes(value);
}

// The first setting in which a rank differs from rank 0, or that one of them lacks; empty if there is none.
inline std::string first_difference(int rank, std::span<setting const> own, std::span<setting const> first) {
    auto const describe = [&](std::string const& name, std::string const* here, std::string const* there) {
        auto const shown = [](std::string const* value, std::string const* other) {
            return value == nullptr ? "none" : value_beside(*value, other != nullptr ? *other : "");
        };
        return sentence(name, ": rank ", rank, " has ", shown(here, there), ", rank 0 has ", shown(there, here),
                        ": give all ranks the same command, variables and files");
    };
    auto const of = [](std::span<setting const> all, std::string const& name) {
        auto const at = std::ranges::find(all, name, &setting::name);
        return at == all.end() ? nullptr : &at->value;
    };
    for (auto const& [name, value] : first)
        if (auto const* const here = of(own, name); here == nullptr || *here != value)
            return describe(name, here, &value);
    for (auto const& [name, value] : own)
        if (of(first, name) == nullptr) return describe(name, &value, nullptr);
    return "";
}

}  // namespace detail

// Throws the same errc::distributed on every rank if a rank has other settings than rank 0, naming the setting and both
// values.
inline void require_same_settings(process_group& ranks, std::span<setting const> own) {
    constexpr std::uint64_t most = process_group::longest_text, max_difference_bytes = 8192;
    auto const first = broadcast_message(ranks, detail::message_of(own), most);
    auto const difference =
        detail::first_difference(ranks.rank(), own, detail::settings_in({first, "the settings of rank 0"}));
    auto const all =
        gather_messages(ranks, std::as_bytes(std::span(difference.data(), difference.size())), max_difference_bytes);
    for (int r = 0; r < all.ranks(); ++r) {
        auto const bytes = all.of(r);
        if (bytes.empty()) continue;
        throw error(errc::distributed, std::string(reinterpret_cast<char const*>(bytes.data()), bytes.size()));
    }
}

}  // namespace calm
