#pragma once
// Files of text are tokenised once: their ids are kept on the disk.

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

// Keeps what a tokenizer makes of a file FILE in FILE.calm-tokens. It holds all documents, whatever the holdout, and is
// made anew when the tokenizer, the file or the limits are others, or when it is damaged. A file whose size and times
// are those that were noted is the same if samples of it are (all of it up to 1 MiB); with other times, or times too
// close to the making, if all its bytes are.
//
// Sums show accidents, not forgery. A cache is believed if this user made it in its place: it is the user's own, nobody
// else may write to it, and it is the very file, unchanged since, that it says it is. What was copied, moved, unpacked
// or edited is made anew. It is open to nobody that the text is closed to.
class token_cache {
public:
    static constexpr char const* suffix = ".calm-tokens";  // behind the name of the text's file

    // The folder of the caches, which is made if need be; "": beside the files.
    std::string folder;
    // Smaller files are read each time.
    std::uint64_t least_bytes = std::uint64_t{1} << 20;
    // Ids of smaller files that a corpus holds in memory: of more it keeps them in a file without a name.
    std::size_t most_held = std::size_t{4} << 20;
    // Whether caches are made: without it those are used that are there, and nothing is written.
    bool makes = true;
    // Is told in a sentence when a cache is made, and why, or cannot be.
    std::function<void(std::string const&)> tell;

    // Where the ids of a file are kept.
    [[nodiscard]] std::string path_for(std::string const& file) const;

    // The ids of a file; nothing where it is too small, where there is no cache and none is made, or where it cannot be
    // written, which is told. Malformed documents as read_documents has them.
    [[nodiscard]] std::shared_ptr<token_file const> tokens_of(std::string const& file, tokenizer const& words,
                                                              document_selection const& selection);

    // Of a corpus that holds more ids than are to be held the disk has them then, where the cache of `file` would be,
    // and as long as the corpus lives. Where it cannot, which is told, they stay in memory.
    void relieve(corpus& text, std::string const& file, token_id vocabulary);

private:
    // The file and tokenizer that ids belong to; `content` is left to whoever needs it.
    static token_file_facts expected_facts(std::string const& file, struct stat const& now, tokenizer const& words,
                                           text_limits const& limits);
    // Why a cache is not to be believed, "" if it is.
    [[nodiscard]] static std::string doubt(struct stat const& text, token_file const& found);
    // Why a cache is not that of the file, "" if it is.
    [[nodiscard]] static std::string difference(std::string const& file, token_file_facts const& expected,
                                                token_file_facts const& found);
    static void make(std::string const& file, token_file_facts facts, tokenizer const& words,
                     document_selection const& selection, token_file_writer& writer);
    void say(std::string const& sentence) const {
        if (tell) tell(sentence);
    }
    void cannot(std::string const& why) {
        if (!std::exchange(told_that_it_cannot_, true))
            say("texts are tokenised each time and held in memory, for the cache cannot be written: " + why);
    }

    bool told_that_it_cannot_ = false;
};

namespace detail {

// Whether an entry of a token file is selected. Asked for all entries in their order; `number` is that of the next
// document, and pieces have the number of the whole before them.
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

// SHA-256 of pieces of `piece` bytes that lie `stride` bytes apart.
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

// All of a file up to 1 MiB, of a larger one 64 pieces.
inline std::array<char, 64> sample_of_file(std::string const& path, std::uint64_t size) {
    constexpr std::size_t piece = std::size_t{16} << 10;
    return hash_of_file(path, piece, std::max<std::uint64_t>(piece, (size + 63) / 64));
}

}  // namespace detail

[[gnu::cold]] inline std::string token_cache::path_for(std::string const& file) const {
    if (folder.empty()) return file + suffix;
    // Files of the same name in different folders have different caches.
    namespace fs = std::filesystem;
    fs::path const absolute = fs::absolute(file).lexically_normal();
    sha256 hash;
    hash.add(absolute.string());
    return (fs::path(folder) / (absolute.filename().string() + '.' + hash.hex().substr(0, 16) + suffix)).string();
}

[[gnu::cold]] inline token_file_facts token_cache::expected_facts(std::string const& file, struct stat const& now,
                                                                  tokenizer const& words, text_limits const& limits) {
    token_file_facts facts;
    // Ids follow from the tokenizer, from what its matcher takes for a letter, and from where documents are split.
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
    if (origin.st_uid != ::geteuid()) return "it is of another user";
    if ((origin.st_mode & 0777 & ~detail::permissions_like(text, origin.st_gid)) != 0)
        return "its permissions are wider than those of a cache of this text";
    // Its last change was its own making. Nobody chooses that time or the number of a file.
    constexpr std::int64_t longest_making = 10'000'000'000;
    auto const changed = detail::nanoseconds(origin.st_ctim) - found.facts().made;
    if (origin.st_ino != found.facts().inode || changed < -longest_making || changed > longest_making)
        return "it was not made here";
    return {};
}

[[gnu::cold]] inline std::string token_cache::difference(std::string const& file, token_file_facts const& expected,
                                                         token_file_facts const& found) {
    if (found.tokenizer != expected.tokenizer) return "it is of another tokenizer";
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
                if (selection.skip == nullptr) return nullptr;  // reading the text says what is wrong
                std::string_view const first(facts.first_skipped.data(), facts.first_skipped.size());
                selection.skip->add(facts.skipped, "left out as " + path + " was made",
                                    std::string(first.substr(0, first.find('\0'))));
                return found;
            }
        }
        if (!makes) return nullptr;
        try {
            if (made) throw error(errc::storage, path, "", "it was not read as it was written: " + why);
            if (!folder.empty()) std::filesystem::create_directories(folder);
            token_file_writer writer(
                path, [&] { say("waiting for another process that writes " + path); }, &now);
            if (writer.is_late()) continue;
            say("tokenising " + file + " into " + path + ": " + why);
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

[[gnu::cold]] inline void token_cache::relieve(corpus& text, std::string const& file, token_id vocabulary) {
    if (!makes || told_that_it_cannot_ || text.held() <= most_held) return;
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
        text.put_aside(keep);
    } catch (error const& wrong) {
        if (wrong.code() != errc::storage) throw;
        cannot(wrong.what());
    } catch (std::filesystem::filesystem_error const& wrong) {
        cannot(wrong.what());
    }
}

[[gnu::cold]] inline void token_cache::make(std::string const& file, token_file_facts facts, tokenizer const& words,
                                            document_selection const& selection, token_file_writer& writer) {
    constexpr std::size_t slice = std::size_t{1} << 20;  // bytes whose ids are held
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
