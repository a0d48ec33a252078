#pragma once
// Caches the ids of text files on disk, so that each is tokenised once.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/base/file.hpp"
#include "calm/base/sha256.hpp"
#include "calm/base/utf8.hpp"
#include "calm/text/corpus.hpp"
#include "calm/text/documents.hpp"
#include "calm/text/pretokenizer.hpp"
#include "calm/text/token_file.hpp"
#include "calm/text/token_file_writer.hpp"
#include "calm/text/tokenizer.hpp"

namespace calm {

// Caches the ids of a file FILE in FILE.calm-tokens. The cache holds all documents, whatever the holdout. It is rebuilt
// if the tokenizer, the file or the limits changed, or if it is damaged. A file with the recorded size and times counts
// as unchanged if samples of it match (up to 1 MiB: all of it). If the times differ, or are too close to the time of
// the build, all bytes must match.
//
// Checksums detect accidents, not forgery. A cache is trusted only if this user built it in place: only the user may
// write to it, and it is the original file, unchanged since. A cache that was copied, moved, unpacked or edited is
// rebuilt. It is never more readable than the text file.
class token_cache {
public:
    static constexpr char const* suffix = ".calm-tokens";  // appended to the name of the text file

    // The folder of the caches, created if necessary; "": next to the text files.
    std::string folder;
    // Smaller files are tokenised each time.
    std::uint64_t least_bytes = std::uint64_t{1} << 20;
    // Maximum ids of uncached files that a corpus holds in memory; more are moved to an unnamed file.
    std::size_t most_held = std::size_t{4} << 20;
    // Whether to build caches. If false, existing caches are used and nothing is written.
    bool makes = true;
    // Receives a message when a cache is built, with the reason, and when it cannot be built.
    std::function<void(std::string const&)> log;

    // The path of the cache of a file.
    [[nodiscard]] std::string path_for(std::string const& file) const;

    // The ids of a file. Returns null if it is too small, if there is no cache and none is built, or if the cache
    // cannot be written, which is reported. Malformed documents are handled as in read_documents.
    [[nodiscard]] std::shared_ptr<token_file const> tokens_of(std::string const& file, tokenizer const& words,
                                                              document_selection const& selection);

    // If a corpus holds more than `most_held` ids in memory, moves them to disk, to the folder of the cache of `file`,
    // for the lifetime of the corpus. If that fails, which is reported, they stay in memory.
    void spill(corpus& text, std::string const& file, token_id vocabulary);

private:
    // The file and tokenizer that ids belong to; `content` is left to callers that need it.
    static token_file_facts expected_facts(std::string const& file, struct stat const& now, tokenizer const& words,
                                           text_limits const& limits);
    // Why a cache is not trusted; "" if it is.
    [[nodiscard]] static std::string doubt(struct stat const& text, token_file const& found);
    // Why a cache does not belong to the file; "" if it does.
    [[nodiscard]] static std::string difference(std::string const& file, token_file_facts const& expected,
                                                token_file_facts const& found);
    static void make(std::string const& file, token_file_facts facts, tokenizer const& words,
                     document_selection const& selection, token_file_writer& writer);
    void log_line(std::string const& sentence) const {
        if (log) log(sentence);
    }
    void cannot(std::string const& why) {
        if (!std::exchange(logged_that_it_cannot_, true))
            log_line("texts are tokenised each time and held in memory, because the cache cannot be written: " + why);
    }

    bool logged_that_it_cannot_ = false;
};

namespace detail {

// Whether an entry of a token file is selected. Must be called for all entries in order. `number` is the number of the
// next document; training pieces have the number of the whole document before them.
inline bool takes_entry(token_file const& kept, std::size_t i, document_selection const& selection,
                        std::uint64_t& number) {
    entry_use const other = selection.use == split::train ? entry_use::evaluation : entry_use::training;
    number += kept.use(i) != entry_use::training;
    return kept.use(i) != other && selection.takes(number - 1);
}

inline struct stat facts_of_file(std::string const& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) fail_with_errno(errc::storage, path, "its size cannot be read");
    return facts;
}

template <std::size_t N> std::array<char, N> characters(std::string_view text) {
    std::array<char, N> all{};
    std::copy_n(text.begin(), std::min(N, text.size()), all.begin());
    return all;
}

// SHA-256 of chunks of `piece` bytes, one every `stride` bytes.
[[gnu::cold]] inline std::array<char, 64> hash_of_file(std::string const& path, std::size_t piece,
                                                       std::uint64_t stride) {
    auto const file = open_for_reading(path);
    std::vector<char> bytes(piece);
    sha256 hash;
    for (std::uint64_t at = 0;; at += stride) {
        std::size_t read = 0;
        while (read < piece) {
            auto const count = uninterrupted(
                [&] { return ::pread(file.get(), bytes.data() + read, piece - read, static_cast<off_t>(at + read)); });
            if (count < 0) fail_with_errno(errc::storage, path, "cannot be read");
            if (count == 0) break;
            read += static_cast<std::size_t>(count);
        }
        if (read == 0) return characters<64>(hash.hex());
        hash.add({bytes.data(), read});
    }
}

inline std::array<char, 64> content_of_file(std::string const& path) {
    constexpr std::size_t piece = std::size_t{1} << 20;
    return hash_of_file(path, piece, piece);
}

// The hash of a whole file up to 1 MiB, or of 64 chunks of a larger one.
inline std::array<char, 64> sample_of_file(std::string const& path, std::uint64_t size) {
    constexpr std::size_t piece = std::size_t{16} << 10;
    return hash_of_file(path, piece, std::max<std::uint64_t>(piece, (size + 63) / 64));
}

}  // namespace detail

[[gnu::cold]] inline std::string token_cache::path_for(std::string const& file) const {
    if (folder.empty()) return file + suffix;
    // Files of equal name in different folders have different caches.
    namespace fs = std::filesystem;
    fs::path const absolute = fs::absolute(file).lexically_normal();
    sha256 hash;
    hash.add(absolute.string());
    return (fs::path(folder) / (absolute.filename().string() + '.' + hash.hex().substr(0, 16) + suffix)).string();
}

[[gnu::cold]] inline token_file_facts token_cache::expected_facts(std::string const& file, struct stat const& now,
                                                                  tokenizer const& words, text_limits const& limits) {
    token_file_facts facts;
    // Ids depend on the tokenizer, on the Unicode tables of its matcher, and on where documents are split.
    sha256 hash;
    hash.add(words.fingerprint());
    hash.add(unicode_version());
    hash.add_u32(training_pieces::longest);
    facts.tokenizer = detail::characters<64>(hash.hex());
    facts.size = static_cast<std::uint64_t>(now.st_size);
    facts.sample = detail::sample_of_file(file, facts.size);
    facts.modified = detail::nanoseconds(now.st_mtim);
    facts.changed = detail::nanoseconds(now.st_ctim);
    facts.longest_line = limits.line;
    facts.longest_file = limits.file;
    return facts;
}

[[gnu::cold]] inline std::string token_cache::doubt(struct stat const& text, token_file const& found) {
    auto const& origin = found.origin();
    if (origin.st_uid != ::geteuid()) return "it belongs to another user";
    if ((origin.st_mode & 0777 & ~detail::permissions_like(text, origin.st_gid)) != 0)
        return "its permissions are wider than the permissions of the text allow";
    // The last status change must be the build itself. Users can choose neither that time nor the inode number of a
    // file.
    constexpr std::int64_t longest_making = 10'000'000'000;
    auto const changed = detail::nanoseconds(origin.st_ctim) - found.facts().made;
    if (origin.st_ino != found.facts().inode || changed < -longest_making || changed > longest_making)
        return "it was not made here";
    return {};
}

[[gnu::cold]] inline std::string token_cache::difference(std::string const& file, token_file_facts const& expected,
                                                         token_file_facts const& found) {
    if (found.tokenizer != expected.tokenizer) return "it belongs to another tokenizer";
    if (found.longest_line != expected.longest_line || found.longest_file != expected.longest_file)
        return "it was made with other limits";
    if (found.size != expected.size || found.sample != expected.sample) return "the text has changed";
    if (found.modified == expected.modified && found.changed == expected.changed) return {};
    return found.content == detail::content_of_file(file) ? "" : "the text has changed";
}

[[gnu::cold]] inline std::shared_ptr<token_file const>
token_cache::tokens_of(std::string const& file, tokenizer const& words, document_selection const& selection) {
    struct stat const now = detail::facts_of_file(file);
    if (!S_ISREG(now.st_mode) || static_cast<std::uint64_t>(now.st_size) < least_bytes) return nullptr;
    auto const path = path_for(file);
    auto const expected = expected_facts(file, now, words, selection.limits);
    for (bool made = false;;) {
        std::string why = "there is none yet";
        std::error_code failure;
        if (std::filesystem::exists(path, failure)) {
            auto found = token_file::open(path, words.vocabulary_size(), why);
            if (found) why = doubt(now, *found);
            if (found && why.empty()) why = difference(file, expected, found->facts());
            if (found && why.empty()) {
                auto const& facts = found->facts();
                if (facts.skipped == 0) return found;
                if (selection.skip == nullptr) return nullptr;  // reading the text reports the fault
                std::string_view const first(facts.first_skipped.data(), facts.first_skipped.size());
                selection.skip->add(facts.skipped, "left out when " + path + " was made",
                                    std::string(first.substr(0, first.find('\0'))));
                return found;
            }
        }
        if (!makes) return nullptr;
        try {
            if (made) throw error(errc::storage, path, "", "it was not read as it was written: " + why);
            if (!folder.empty()) std::filesystem::create_directories(folder);
            token_file_writer writer(
                path, [&] { log_line("waiting for another process that writes " + path); }, &now);
            if (writer.is_late()) continue;
            log_line("tokenising " + file + " into " + path + ": " + why);
            make(file, expected, words, selection, writer);
            made = true;
        } catch (error const& wrong) {
            if (wrong.code() != errc::storage || wrong.path() == file) throw;
            cannot(wrong.what());
            return nullptr;
        } catch (std::filesystem::filesystem_error const& wrong) {
            cannot(wrong.what());
            return nullptr;
        }
    }
}

[[gnu::cold]] inline void token_cache::spill(corpus& text, std::string const& file, token_id vocabulary) {
    if (!makes || logged_that_it_cannot_ || text.held() <= most_held) return;
    auto const keep = [&](std::vector<std::span<token_id const>> const& documents) {
        auto writer = token_file_writer::nameless(std::filesystem::path(path_for(file)).parent_path().string());
        for (auto const ids : documents) writer.add(ids, entry_use::both);
        std::string why;
        auto kept = token_file::of(writer.mapped({}), vocabulary, why);
        if (!kept) throw error(errc::storage, file, "", "its ids were not read as they were written: " + why);
        return kept;
    };
    try {
        if (!folder.empty()) std::filesystem::create_directories(folder);
        text.spill_to_disk(keep);
    } catch (error const& wrong) {
        if (wrong.code() != errc::storage) throw;
        cannot(wrong.what());
    } catch (std::filesystem::filesystem_error const& wrong) {
        cannot(wrong.what());
    }
}

[[gnu::cold]] inline void token_cache::make(std::string const& file, token_file_facts facts, tokenizer const& words,
                                            document_selection const& selection, token_file_writer& writer) {
    constexpr std::size_t slice = std::size_t{1} << 20;  // bytes tokenised at a time
    std::vector<token_id> ids;
    token_stream stream(words);
    auto const write = [&] {
        writer.add(ids);
        ids.clear();
    };
    auto const add = [&](std::string_view part, bool ends, entry_use use) {
        for (; !part.empty(); part.remove_prefix(std::min(part.size(), slice))) {
            stream.push(part.substr(0, slice), ids);
            write();
        }
        if (!ends) return;
        stream.finish(ids);
        write();
        writer.end(use);
    };
    document_parts const add_piece = [&](std::string_view part, bool ends) {
        add(part, ends, entry_use::training);
        return std::size_t{0};
    };
    document_parts const count = [](std::string_view, bool ends) { return std::size_t{ends}; };
    skipped_documents skipped;
    training_pieces counted(count);
    training_pieces pieces(add_piece);
    std::size_t found = 0;
    bool again = false;
    read_documents(file, selection.limits, selection.skip != nullptr ? &skipped : nullptr,
                   [&](std::string_view part, bool ends) {
                       found += counted(part, ends);
                       bool const is_long = found > 1;
                       add(part, ends, is_long ? entry_use::evaluation : entry_use::both);
                       if (!ends) return;
                       found = 0;
                       again = is_long && text_format_of(file) == text_format::document;
                       if (is_long && !again) pieces(part, true);
                   });
    if (again)  // the document came in parts
        read_documents(file, selection.limits, nullptr, std::ref(pieces));
    facts.content = detail::content_of_file(file);
    facts.skipped = skipped.count;
    std::string_view const first = skipped.causes.empty() ? std::string_view() : skipped.causes.front().first;
    facts.first_skipped = detail::characters<256>(first.substr(0, valid_prefix(first.substr(0, 255))));

    struct timespec clock {};
    struct stat const after = detail::facts_of_file(file);
    auto const modified = detail::nanoseconds(after.st_mtim);
    auto const changed = detail::nanoseconds(after.st_ctim);
    if (static_cast<std::uint64_t>(after.st_size) != facts.size || modified != facts.modified ||
        changed != facts.changed)
        throw error(errc::data, file, "", "the file changed while it was read: start again when it is complete");
    ::clock_gettime(CLOCK_REALTIME, &clock);
    constexpr std::int64_t coarsest_clock = 2'000'000'000;
    if (detail::nanoseconds(clock) - std::max(modified, changed) < coarsest_clock) facts.modified = facts.changed = 0;
    writer.commit(facts);
}

}  // namespace calm
