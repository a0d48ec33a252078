#pragma once
// tiktoken's vocabulary format: one line `base64 rank` per token.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/text/detail/base64.hpp"
#include "calm/text/detail/token_table.hpp"
#include "calm/text/detail/vocabulary.hpp"

namespace calm::detail {

// The lines of the tokens of a table, without special tokens.
[[nodiscard]] inline std::string rank_lines(token_table const& table) {
    std::string text;
    token_id rank = 0;
    for (token_id id = 0; id < table.size(); ++id)
        if (!table.bytes(id).empty()) text += base64_encode(table.bytes(id)) + ' ' + std::to_string(rank++) + '\n';
    return text;
}

// Parses such lines; ids are ranks. Skips blank lines and accepts CRLF line ends. Throws errc::tokenizer with `path`
// and the line.
[[nodiscard]] inline token_table parse_rank_lines(std::string_view text, std::string const& path) {
    require_tokenizer_size(path, text.size());
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the UTF-8 byte order mark
    token_table table;
    for (std::size_t number = 1; !text.empty(); ++number) {
        auto const fail = [&](std::string const& sentence) {
            throw error(errc::tokenizer, path, "line " + std::to_string(number), sentence);
        };
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty()) continue;
        std::size_t const space = line.find(' ');
        if (space == std::string_view::npos)
            fail("expected `base64 rank`, found no space: this is not a tokenizer file");
        auto const token = base64_decode(line.substr(0, space));
        if (!token || token->empty())
            fail("expected a token in base64 before the space, found " + in_quotes(line.substr(0, space), '"') +
                 ": the file is damaged, copy it again");
        if (token->size() > longest_token)
            fail("expected a token of at most " + std::to_string(longest_token) + " bytes, found " +
                 std::to_string(token->size()) + ": the file is damaged, copy it again");
        std::string_view const number_text = line.substr(space + 1);
        token_id rank = -1;
        char const* const end = number_text.data() + number_text.size();
        auto const parsed = std::from_chars(number_text.data(), end, rank);
        if (parsed.ec != std::errc{} || parsed.ptr != end || std::to_string(rank) != number_text)
            fail("expected a number after the space, found " + in_quotes(number_text, '"'));
        if (rank != table.size())
            fail("expected rank " + std::to_string(table.size()) + ", found " + std::to_string(rank) +
                 ": ranks count up from 0, a line is missing or out of order");
        constexpr std::size_t most = limits::vocabulary - 3;
        if (static_cast<std::size_t>(rank) >= most)
            fail("expected at most " + std::to_string(most) + " tokens, found more: the file is of another kind");
        if (table.add(*token) < 0)
            fail("rank " + std::to_string(rank) + " repeats the token of rank " + std::to_string(table.find(*token)) +
                 ": remove one of them and renumber");
    }
    return table;
}

}  // namespace calm::detail
