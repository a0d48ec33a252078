#pragma once
// Files of one JSON object a line.

// Its parser chooses the instructions when the program runs, in the library. Without these lines its header also holds
// another parser, which is not used here, for three sets of instructions, and takes half a second longer to compile.
#ifndef SIMDJSON_IMPLEMENTATION_ICELAKE
#define SIMDJSON_IMPLEMENTATION_ICELAKE 0
#endif
#ifndef SIMDJSON_IMPLEMENTATION_HASWELL
#define SIMDJSON_IMPLEMENTATION_HASWELL 0
#endif
#ifndef SIMDJSON_IMPLEMENTATION_WESTMERE
#define SIMDJSON_IMPLEMENTATION_WESTMERE 0
#endif
#include <simdjson.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "calm/tensor/error.hpp"

namespace calm {

// Reads the field "text" of one JSON object after another; other fields are ignored, blank lines skipped. Holds one
// line at a time. Errors are errc::data and name file, line and cause.
class json_lines {
public:
    // Throws if the file cannot be opened.
    explicit json_lines(std::string path) : path_(std::move(path)), file_(path_, std::ios::binary) {
        if (!file_) throw error(errc::data, path_, "", std::string("cannot be opened: ") + std::strerror(errno));
    }

    // The next text into `text`; false at the end of the file.
    [[nodiscard]] bool next(std::string& text) {
        while (std::getline(file_, line_)) {
            ++number_;
            if (number_ == 1 && line_.starts_with("\xef\xbb\xbf")) line_.erase(0, 3);  // byte order mark
            if (line_.find_first_not_of(" \t\r") == std::string::npos) continue;
            text = text_of_line();
            return true;
        }
        if (!file_.eof()) throw error(errc::data, path_, place(), "reading failed before the end of the file");
        return false;
    }

private:
    [[nodiscard]] std::string place() const { return "line " + std::to_string(number_); }

    [[nodiscard]] std::string_view text_of_line() {
        auto const fail = [&](std::string const& sentence) { throw error(errc::data, path_, place(), sentence); };
        line_.reserve(line_.size() + simdjson::SIMDJSON_PADDING);
        simdjson::dom::element line;
        if (auto const code = parser_.parse(line_.data(), line_.size(), false).get(line); code != simdjson::SUCCESS)
            fail(std::string("no valid JSON (") + simdjson::error_message(code) + "): expected one object a line");
        simdjson::dom::object object;
        if (line.get(object) != simdjson::SUCCESS)
            fail("expected an object with a field \"text\", found " + name_of(line.type()) +
                 "; write one object a line, {\"text\": \"...\"}");
        std::size_t found = 0;
        simdjson::dom::element value;
        for (auto const field : object)  // the parser accepts a key twice
            if (field.key == "text") {
                value = field.value;
                ++found;
            }
        if (found == 0) fail("the object has no field \"text\"; rename the field that holds the text");
        if (found > 1) fail("the object has more than one field \"text\"; keep one");
        std::string_view text;
        if (value.get(text) != simdjson::SUCCESS)
            fail("the field \"text\" must be a string, found " + name_of(value.type()));
        return text;
    }

    [[nodiscard]] static std::string name_of(simdjson::dom::element_type type) {
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

    std::string path_;
    std::ifstream file_;
    std::string line_;
    std::size_t number_ = 0;
    simdjson::dom::parser parser_;
};

}  // namespace calm
