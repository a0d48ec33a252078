#pragma once
/// \file
/// Document sources: files, and the generators of stories and of Markov symbols.
/// \shows{tests/text/documents_test.cpp,folders_and_patterns_are_their_files}

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/text/detail/file_list.hpp"
#include "calm/text/detail/text_file.hpp"
#include "calm/text/holdout.hpp"
#include "calm/text/markov.hpp"
#include "calm/text/stories.hpp"

namespace calm {

/// Which documents to take from a list of sources.
struct document_selection {
    split use = split::train;  ///< use of the documents
    /// Without a holdout, a file is read whole for either use, and `stories` generates separate held-out documents.
    std::optional<holdout> held = std::nullopt;
    /// Seed of generated sources.
    std::uint64_t data_seed = 1;
    /// If set, malformed documents of files are skipped, counted here and not numbered. Otherwise the first one is an
    /// error.
    skipped_documents* skip = nullptr;
    text_limits limits{};  ///< of every file

    /// Whether document i of a source is selected.
    [[nodiscard]] bool takes(std::uint64_t i) const { return !held || held->contains(i) == (use == split::heldout); }
};

/// Receives documents in parts, so that none is held in memory; `ends` is true for the last part of each. Returns a
/// number of tokens: a generated source of N tokens ends once their sum is N.
using document_parts = std::function<std::size_t(std::string_view part, bool ends)>;

/// Splits documents of more than 10,000 words for training: at every 10,000th U+0020, which is dropped. Text with few
/// spaces is split before the character that would make a piece longer than 1 MiB.
class training_pieces {
public:
    static constexpr std::size_t most_spaces = 10'000;            ///< the piece ends at the last of them
    static constexpr std::size_t longest = std::size_t{1} << 20;  ///< bytes of a piece

    /// The visitor must outlive it.
    explicit training_pieces(document_parts const& visitor) : visitor_(visitor) {}

    /// Returns the sum of the visitor's results.
    std::size_t operator()(std::string_view part, bool ends) {
        std::size_t sum = 0;
        for (std::size_t end = end_of_piece(part); end != std::string_view::npos; end = end_of_piece(part)) {
            sum += visitor_(part.substr(0, end), true);
            part.remove_prefix(end + (spaces_ == most_spaces ? 1 : 0));
            spaces_ = size_ = 0;
        }
        size_ += part.size();
        if (ends) spaces_ = size_ = 0;
        return ends || !part.empty() ? sum + visitor_(part, ends) : sum;
    }

private:
    // Where the current piece ends in this part, or npos.
    std::size_t end_of_piece(std::string_view part) {
        auto const room = part.substr(0, longest - size_);
        for (std::size_t at = room.find(' '); at != std::string_view::npos; at = room.find(' ', at + 1))
            if (++spaces_ == most_spaces) return at;
        if (room.size() == part.size()) return std::string_view::npos;
        std::size_t end = room.size();
        while (end > 0 && (static_cast<std::uint8_t>(part[end]) & 0xc0) == 0x80) --end;
        return end;
    }

    document_parts const& visitor_;
    std::size_t spaces_ = 0;  // in the current piece; size_ counts its bytes
    std::size_t size_ = 0;
};

/// One source: the files that files_of() finds, `stories:N`, or `markov:N`. The Markov source is one document of N
/// symbols; each split has its own, regardless of the holdout.
class document_source {
public:
    /// The kind of a SPEC.
    enum class kind { files, stories, markov };
    /// Maximum tokens of stories or Markov symbols, which are held in memory.
    static constexpr std::uint64_t most_generated = 1'000'000'000;

    /// Parses a SPEC. Throws errc::usage if it is invalid, otherwise as files_of.
    [[nodiscard]] static document_source parse(std::string const& spec) {
        if (spec.starts_with("stories:")) return {kind::stories, {}, tokens_of(spec)};
        if (spec.starts_with("markov:")) return {kind::markov, {}, tokens_of(spec)};
        return {kind::files, detail::files_of(spec), 0};
    }

    [[nodiscard]] kind type() const { return kind_; }  ///< of the SPEC
    /// Whether its documents are generated, from the data seed.
    [[nodiscard]] bool is_generated() const { return kind_ != kind::files; }
    /// The file paths; empty for a generated source.
    [[nodiscard]] std::vector<std::string> const& files() const { return files_.files; }
    /// Folders of runs and models that were found and skipped.
    [[nodiscard]] std::vector<std::string> const& left_out() const { return files_.left_out; }

    /// Visits the selected documents in order; for training, documents of files come in pieces. Documents of files are
    /// numbered from `number` on, which advances past them. Generated documents have a separate count, because their
    /// number depends on the visitor. Throws as read_documents.
    void visit(document_selection const& selection, std::uint64_t& number, document_parts const& visitor) const {
        switch (kind_) {
        case kind::files:
            for (auto const& file : files_.files) visit_file(file, selection, number, visitor);
            return;
        case kind::stories: {
            split const own = selection.held ? split::train : selection.use;
            std::uint64_t made = 0;
            for (std::uint64_t i = 0; made < tokens_; ++i)
                if (selection.takes(i)) made += visitor(story(selection.data_seed, own, i), true);
            return;
        }
        case kind::markov:
            visitor(markov_chain(selection.data_seed).text(selection.use, static_cast<std::size_t>(tokens_)), true);
            return;
        }
    }

private:
    // Visits the selected documents of one file.
    static void visit_file(std::string const& path, document_selection const& selection, std::uint64_t& number,
                           document_parts const& visitor) {
        bool inside = false;
        bool taken = false;
        training_pieces pieces(visitor);
        read_documents(path, selection.limits, selection.skip, [&](std::string_view part, bool ends) {
            if (!std::exchange(inside, !ends)) taken = selection.takes(number++);
            if (!taken) return;
            if (selection.use == split::train)
                pieces(part, ends);
            else
                visitor(part, ends);
        });
    }

    document_source(kind type, detail::file_list files, std::uint64_t tokens) :
        kind_(type), files_(std::move(files)), tokens_(tokens) {}

    [[nodiscard]] static std::uint64_t tokens_of(std::string const& spec) {
        std::string_view const digits = std::string_view(spec).substr(spec.find(':') + 1);
        std::uint64_t tokens = 0;
        auto const result = std::from_chars(digits.data(), digits.data() + digits.size(), tokens);
        std::string_view const name = std::string_view(spec).substr(0, spec.find(':'));
        bool const whole = result.ec == std::errc{} && result.ptr == digits.data() + digits.size();
        require(whole && tokens > 0 && tokens <= most_generated, errc::usage, "\"", spec, "\": expected ", name,
                ":N with N > 0 tokens to generate, at most ", most_generated, ", e.g. ", name, ":400000");
        return tokens;
    }

    kind kind_;
    detail::file_list files_;
    std::uint64_t tokens_;
};

/// Whether the SPECs name symbols instead of text, which are their own tokens: markov:N.
[[nodiscard]] inline bool has_own_symbols(std::span<std::string const> specs) {
    return !specs.empty() && specs.front().starts_with("markov:");
}

/// Parses and checks a list of SPECs. Throws as document_source::parse, and errc::usage for sources that cannot be
/// combined.
[[nodiscard]] inline std::vector<document_source> document_sources(std::span<std::string const> specs) {
    std::vector<document_source> sources;
    std::size_t generated = 0;
    bool symbols = false;
    for (auto const& spec : specs) {
        sources.push_back(document_source::parse(spec));
        generated += sources.back().type() == document_source::kind::stories;
        symbols = symbols || sources.back().type() == document_source::kind::markov;
    }
    require(!sources.empty(), errc::usage, "there is no text: give a file or stories:N");
    require(!symbols || sources.size() == 1, errc::usage,
            "markov:N is one unbroken stream of symbols, not text: give it alone");
    require(generated <= 1, errc::usage,
            "stories:N is given more than once, which would repeat the same stories: give it once with the sum");
    return sources;
}

/// Throws errc::data unless `any`: a selection took a document. `all` is the number of documents in files.
inline void require_documents(bool any, std::uint64_t all, document_selection const& selection) {
    if (any) return;
    auto const left =
        std::string("no document is left ") + (selection.use == split::train ? "to train on" : "to evaluate on");
    require(selection.held && all > 0, errc::data, left, ": give more documents");
    throw error(errc::data, sentence(left, " with the holdout ", selection.held->text(), " (documents in all: ", all,
                                     "): choose another m:r, give more documents, or cut a .txt file, which is one "
                                     "document, into several"));
}

/// Visits the selected documents of a list of SPECs; documents of files are numbered from 0 across the list. For
/// training, long documents come in pieces. All SPECs are checked before the first is read. Throws as document_source,
/// and errc::data if no document is selected.
inline void visit_documents(std::span<std::string const> specs, document_selection const& selection,
                            document_parts const& visitor) {
    std::uint64_t number = 0;
    bool any = false;
    document_parts const noting = [&](std::string_view part, bool ends) {
        any = true;
        return visitor(part, ends);
    };
    for (auto const& source : document_sources(specs)) source.visit(selection, number, noting);
    require_documents(any, number, selection);
}

}  // namespace calm
