#pragma once
// The ids of documents on disk: written once, mapped when used.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "calm/base/detail/checksum.hpp"
#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/base/token.hpp"
#include "calm/text/detail/mapped_pages.hpp"

namespace calm {

// The end of a token file, in native byte order. Before it come the ids, 32 bits each, padded to a multiple of eight
// bytes, then for every document the number of ids up to its end, 64 bits.
struct token_file_facts {
    // Format and version.
    std::array<char, 16> magic{'c', 'a', 'l', 'm', ' ', 't', 'o', 'k', 'e', 'n', 's', ' ', '4', '\n', '\0', '\n'};
    std::uint32_t byte_order = 0x01020304;            // in native byte order
    std::uint32_t bytes_of_token = sizeof(token_id);  // 4
    std::array<char, 64> digest{};                    // SHA-256 of everything that determines the ids
    std::uint64_t tokens = 0;                         // total ids
    std::uint64_t documents = 0;                      // number of documents
    std::uint64_t skipped = 0;                        // malformed documents that were left out
    std::uint64_t body = 0;                           // checksum of everything before these facts
    std::uint64_t own = 0;                            // checksum of the facts above
};
static_assert(std::has_unique_object_representations_v<token_file_facts> && sizeof(token_file_facts) % 8 == 0);

// Bytes of the chunks of a token file's checksum; the last chunk may be shorter.
inline constexpr std::size_t checksum_portion = std::size_t{1} << 20;

namespace detail {

inline std::uint64_t own_sum(token_file_facts const& facts) {
    checksum sum;
    sum.add(std::as_bytes(std::span(&facts, 1)).first(offsetof(token_file_facts, own)));
    return sum.value();
}

inline std::uint64_t bytes_of_ids(std::uint64_t tokens) {
    return (sizeof(token_id) * tokens + 7) / 8 * 8;
}

}  // namespace detail

// An intact token file, mapped. Its ids stay on disk: touched pages are released, so that all token files of a process
// together take some 64 MiB of memory. Any number of threads may read.
class token_file {
public:
    // Why a file is rejected, as a clause.
    using reason = std::string;

    // Opens and checks a file: reads it once and requires ids in 0..V-1. Returns null and sets `why` if it is missing
    // or damaged.
    [[nodiscard]] static std::shared_ptr<token_file const> open(std::string const& path, token_id vocabulary,
                                                                reason& why);

    // The facts at its end.
    [[nodiscard]] token_file_facts const& facts() const noexcept { return facts_; }
    // The number of documents.
    [[nodiscard]] std::size_t documents() const noexcept { return ends_.size(); }
    // The number of ids of document i.
    [[nodiscard]] std::size_t size(std::size_t i) const { return ends_[i] - begin(i); }
    // The ids of document i, valid as long as this object.
    [[nodiscard]] std::span<token_id const> ids(std::size_t i) const {
        auto const found = ids_.subspan(begin(i), size(i));
        pages_.touch(found.size_bytes());
        return found;
    }

private:
    explicit token_file(mapped_file file) : file_(std::move(file)) {}
    [[nodiscard]] std::size_t begin(std::size_t i) const { return i == 0 ? 0 : ends_[i - 1]; }
    [[nodiscard]] reason fault(token_id vocabulary);

    mapped_file file_;
    mutable detail::mapped_pages pages_{file_.bytes()};
    token_file_facts facts_;
    std::span<token_id const> ids_;
    std::span<std::uint64_t const> ends_;
};

[[gnu::cold]] inline std::shared_ptr<token_file const> token_file::open(std::string const& path, token_id vocabulary,
                                                                        reason& why) {
    try {
        std::shared_ptr<token_file> opened(new token_file(mapped_file::open(path)));
        why = opened->fault(vocabulary);
        return why.empty() ? std::move(opened) : nullptr;
    } catch (error const& wrong) {
        why = wrong.what();
    }
    return nullptr;
}

[[gnu::cold]] inline token_file::reason token_file::fault(token_id vocabulary) {
    auto const bytes = file_.bytes();
    if (bytes.size() < sizeof facts_) return "it ends early";
    auto const body = bytes.first(bytes.size() - sizeof facts_);
    std::memcpy(&facts_, body.data() + body.size(), sizeof facts_);
    token_file_facts const ours;
    if (facts_.magic != ours.magic || facts_.byte_order != ours.byte_order ||
        facts_.bytes_of_token != ours.bytes_of_token)
        return "it has another format, or was cut short";
    if (facts_.own != detail::own_sum(facts_)) return "its facts are damaged";
    std::uint64_t const words = body.size() / 8;
    if (facts_.tokens > 2 * words || facts_.documents > words ||
        detail::bytes_of_ids(facts_.tokens) + 8 * facts_.documents != body.size())
        return "its length does not match its facts";
    ids_ = {reinterpret_cast<token_id const*>(body.data()), facts_.tokens};
    ends_ = {reinterpret_cast<std::uint64_t const*>(body.data() + detail::bytes_of_ids(facts_.tokens)),
             facts_.documents};
    checksum sum;
    std::uint32_t largest = 0;
    for (std::size_t at = 0; at < body.size(); at += checksum_portion) {
        auto const portion = body.subspan(at, std::min(checksum_portion, body.size() - at));
        pages_.touch(portion.size());
        sum.add(portion);
        std::size_t const first = std::min(at / sizeof(token_id), ids_.size());
        for (token_id const id :
             ids_.subspan(first, std::min(checksum_portion / sizeof(token_id), ids_.size() - first)))
            largest = std::max(largest, static_cast<std::uint32_t>(id));
    }
    if (sum.value() != facts_.body) return "its bytes are damaged";
    if (!ids_.empty() && largest >= static_cast<std::uint32_t>(vocabulary))
        return "its ids belong to another vocabulary";
    if (!std::is_sorted(ends_.begin(), ends_.end())) return "its ends are out of order";
    if ((ends_.empty() ? 0 : ends_.back()) != ids_.size()) return "its ends do not fit its ids";
    pages_.let_go();
    return {};
}

}  // namespace calm
