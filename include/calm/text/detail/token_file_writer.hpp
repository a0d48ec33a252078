#pragma once
// Writes token files.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/base/token.hpp"
#include "calm/text/detail/token_file.hpp"

namespace calm::detail {

// Writes a token file under a temporary name and renames it on commit(); without commit() nothing changes. Holds few
// ids in memory. Only one writer per path at a time.
class token_file_writer {
public:
    // Throws errc::storage if the file cannot be written.
    explicit token_file_writer(std::string const& path) : file_(path) { portion_.reserve(checksum_portion); }

    // Adds a document incrementally: append some of its ids to open(), any number of times, then call close(). Throws
    // errc::storage.
    [[nodiscard]] std::vector<token_id>& open() {
        if (ids_.size() * sizeof(token_id) >= checksum_portion) write_ids();
        return ids_;
    }
    // Ends the document; returns the number of its ids.
    std::size_t close() {
        std::uint64_t const before = ends_.empty() ? 0 : ends_.back();
        ends_.push_back(written_ + ids_.size());
        return static_cast<std::size_t>(ends_.back() - before);
    }

    // Completes the file and replaces the one at its path; the digest has 64 characters, `skipped` counts malformed
    // documents that were left out. Throws errc::storage; an existing file then remains.
    void commit(std::string_view digest, std::uint64_t skipped = 0) {
        write_ids();
        token_id const none = 0;
        if (written_ % 2 == 1) append(std::as_bytes(std::span(&none, 1)));
        append(std::as_bytes(std::span(ends_)));
        write_portion();
        token_file_facts facts;
        require(digest.size() == facts.digest.size(), errc::usage, "a token file needs a digest of 64 characters");
        std::copy(digest.begin(), digest.end(), facts.digest.begin());
        facts.tokens = written_;
        facts.documents = ends_.size();
        facts.skipped = skipped;
        facts.body = sum_.value();
        facts.own = own_sum(facts);
        file_.write(std::as_bytes(std::span(&facts, 1)));
        file_.commit();
    }

private:
    void write_ids() {
        append(std::as_bytes(std::span(ids_)));
        written_ += ids_.size();
        ids_.clear();
    }
    void append(std::span<std::byte const> bytes) {
        while (!bytes.empty()) {
            auto const some = bytes.first(std::min(bytes.size(), checksum_portion - portion_.size()));
            portion_.insert(portion_.end(), some.begin(), some.end());
            bytes = bytes.subspan(some.size());
            if (portion_.size() == checksum_portion) write_portion();
        }
    }
    void write_portion() {
        sum_.add(portion_);
        file_.write(portion_);
        portion_.clear();
    }

    replaced_file file_;
    std::vector<token_id> ids_;       // not yet written
    std::vector<std::byte> portion_;  // of the file, not yet written
    checksum sum_;
    std::uint64_t written_ = 0;  // ids
    std::vector<std::uint64_t> ends_;
};

}  // namespace calm::detail
