#pragma once
// Files with one JSON object per line.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/detail/simdjson.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/text/detail/json_faults.hpp"
#include "calm/text/detail/json_size.hpp"
#include "calm/text/detail/line_reader.hpp"
#include "calm/text/detail/text_encoding.hpp"

namespace calm::detail {

// Reads the field "text" of one JSON object after another; other fields are ignored, blank lines skipped. Holds one
// line and its text in memory, and refuses a line that is not mostly text. The file may be compressed (byte_stream).
// Errors of the text are errc::data and name file, line and cause; the next call then continues with the next line.
class json_lines {
public:
    // Maximum bytes per line: a longer one is not a document but lacks a line break.
    static constexpr std::size_t longest_line = std::size_t{64} << 20;
    // Maximum values and punctuation characters per line, because parsing each takes memory.
    static constexpr std::size_t most_values = std::size_t{1} << 20;

    // Throws errc::storage if the file cannot be opened.
    explicit json_lines(std::string path, std::size_t longest = longest_line) : lines_(std::move(path), longest) {}

    // The next text, valid until the next call; false at the end of the file.
    [[nodiscard]] bool next(std::string_view& text) {
        while (lines_.next(line_)) {
            if (line_.find_first_not_of(" \t\r") == std::string::npos) continue;
            text = text_of_line();
            return true;
        }
        return false;
    }

    // The number of the last line read, from 1.
    [[nodiscard]] std::uint64_t number() const noexcept { return lines_.number(); }

private:
    [[noreturn, gnu::cold]] void fail(std::string const& sentence, std::string const& place = "") const {
        throw error(errc::data, lines_.path(), "line " + std::to_string(lines_.number()) + place, sentence);
    }
    [[noreturn, gnu::cold]] void fail_as_no_json(simdjson::error_code code) const {
        if (auto const fault = number() == 1 ? fault_of_source(line_) : fault_of_encoding(line_))
            fail(fault->sentence, ", byte " + std::to_string(fault->byte));
        if (auto const word = word_of_python_in(line_))
            fail("invalid JSON: " + *word + " is not a JSON value, although Python writes it: write null instead");
        if (auto const half = lone_surrogate_in(line_))
            fail(sentence("invalid JSON: ", *half,
                          " is a lone surrogate, half of a character: expected a pair like \\ud83d\\ude00"));
        fail(std::string("invalid JSON (") + simdjson::error_message(code) + "): expected one object per line, " +
             "{\"text\": \"...\"}");
    }

    [[nodiscard]] std::string_view text_of_line() {
        if (!json_has_at_most(line_, most_values))
            fail("the line has more than " + std::to_string(most_values) +
                 " values and signs: expected one object per line whose field \"text\" is most of it");
        line_.reserve(line_.size() + simdjson::SIMDJSON_PADDING);
        simdjson::dom::element line;
        auto const parse = [&] { return parser_.parse(line_.data(), line_.size(), false).get(line); };
        auto code = parse();
        if (code == simdjson::NUMBER_ERROR) {
            forget_json_numbers(line_);
            code = parse();
        }
        if (code != simdjson::SUCCESS) fail_as_no_json(code);
        simdjson::dom::object object;
        if (line.get(object) != simdjson::SUCCESS)
            fail("expected an object with a field \"text\", found " + name_of(line.type()) +
                 "; write one object per line, {\"text\": \"...\"}");
        simdjson::dom::element value;
        keys_.clear();
        for (auto const field : object) {
            keys_.push_back(field.key);
            if (field.key == "text") value = field.value;
        }
        std::sort(keys_.begin(), keys_.end());
        if (!std::binary_search(keys_.begin(), keys_.end(), "text"))
            fail("the object has no field \"text\"; rename the field that holds the text");
        // The parser accepts duplicate keys, which are ambiguous.
        if (auto const twice = std::adjacent_find(keys_.begin(), keys_.end()); twice != keys_.end())
            fail("the object has more than one field " + in_quotes(*twice, '"') + "; keep one");
        std::string_view text;
        if (value.get(text) != simdjson::SUCCESS)
            fail("the field \"text\" must be a string, found " + name_of(value.type()));
        return text;
    }

    [[nodiscard, gnu::cold]] static std::string name_of(simdjson::dom::element_type type) {
        switch (type) {
        case simdjson::dom::element_type::ARRAY:
            return "an array";
        case simdjson::dom::element_type::OBJECT:
            return "an object";
        case simdjson::dom::element_type::STRING:
            return "a string";
        case simdjson::dom::element_type::BOOL:
            return "true or false";
        case simdjson::dom::element_type::NULL_VALUE:
            return "null";
        default:
            return "a number";
        }
    }

    line_reader lines_;
    std::string line_;
    std::vector<std::string_view> keys_;
    simdjson::dom::parser parser_;
};

}  // namespace calm::detail
