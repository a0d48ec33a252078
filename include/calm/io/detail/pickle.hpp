#pragma once
// Reads the pickle inside pytorch_model.bin with a machine that supports dictionaries of tensors and nothing else. No
// name in the file is ever looked up or called; anything unknown is refused by name.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/io/detail/bounded_reader.hpp"
#include "calm/io/detail/pickle_global.hpp"
#include "calm/io/detail/pickle_opcode.hpp"
#include "calm/io/detail/stored_tensor.hpp"

namespace calm::detail {

// A tensor as a pickle describes it: a view into a storage, counted in elements. Not yet checked against the storage.
struct pickled_tensor {
    std::string name;                     // its key in the dictionary
    stored_type type = stored_type::f32;  // of an element
    std::string storage;                  // key of the storage
    std::uint64_t storage_elements = 0;   // elements of the storage
    std::uint64_t offset = 0;             // of the first element in the storage
    std::vector<index_t> shape;           // size of each dimension
    std::vector<index_t> strides;         // distance of neighbours in each dimension
};

class pickle_machine {
public:
    // Errors name the file and the entry `path`.
    pickle_machine(std::span<std::byte const> bytes, std::string const& path) : reader_(bytes, path) {
        if (bytes.size() > longest)
            reader_.fail(0, "expected a pickle of at most " + std::to_string(longest) + " bytes, found " +
                                std::to_string(bytes.size()));
    }

    // The tensors of the dictionary in the pickle. Throws errc::model_file with the byte and the unknown opcode or
    // name.
    std::vector<pickled_tensor> run() {
        while (step()) {
        }
        if (reader_.remaining() > 0) fail("expected the pickle to end here, found further bytes");
        if (stack_.size() != 1) fail("expected one object, found " + std::to_string(stack_.size()));
        return tensors_of(pop());
    }

private:
    using place = std::uint32_t;  // index of an object
    enum class kind { mark, none, boolean, integer, real, text, tuple, list, dictionary, global, storage, tensor };
    // The name of an object's kind, for messages.
    static std::string_view name_of(kind k) {
        constexpr std::array<std::string_view, 12> names{"a mark",       "None",          "a truth value", "an integer",
                                                         "a number",     "a text",        "a tuple",       "a list",
                                                         "a dictionary", "a global name", "a storage",     "a tensor"};
        return names[static_cast<std::size_t>(k)];
    }
    // `number` holds an integer, a storage's element count, or a tensor's index in tensors_. `text` holds a text or a
    // storage's key. `parts` holds the elements of a tuple or list, or the alternating keys and values of a dictionary.
    struct object {
        kind is;
        std::int64_t number = 0;
        std::string_view text = {};
        std::vector<place> parts = {};
        stored_type type = stored_type::f32;
    };
    static constexpr std::uint64_t longest = std::uint64_t{8} << 20;   // bytes; a tensor takes about 200
    static constexpr std::size_t most_objects = std::size_t{1} << 17;  // a tensor takes about 20

    // Executes one instruction; false at the end.
    bool step() {
        at_ = reader_.position();
        auto const code = reader_.little<std::uint8_t>("an opcode");
        auto const opcode = static_cast<char>(code);
        if (opcode == '.') return false;
        if (!frames(opcode) && !pushes_value(opcode) && !remembers(opcode) && !collects(opcode) && !refers(opcode))
            fail("expected an opcode of dictionaries of tensors, found " + opcode_text(code) +
                 ", which is refused; nothing of the file was executed");
        return true;
    }

    // ---- opcodes by kind: each function executes its own opcodes and returns whether this was one

    bool frames(char opcode) {
        if (opcode == '\x80') {
            if (auto const version = reader_.little<std::uint8_t>("a protocol"); version < 2 || version > 5)
                fail("expected protocol 2 to 5, found " + std::to_string(version));
        } else if (opcode == '\x95') {
            if (reader_.little<std::uint64_t>("the length of a frame") > reader_.remaining())
                fail("expected a frame inside the pickle, found a longer one");
        }
        return opcode == '\x80' || opcode == '\x95';
    }
    bool pushes_value(char opcode) {
        switch (opcode) {
        case '(':
            return push({kind::mark});
        case 'N':
            return push({kind::none});
        case '\x88':
            return push({kind::boolean, 1});
        case '\x89':
            return push({kind::boolean, 0});
        case 'K':
            return push({kind::integer, reader_.little<std::uint8_t>("an integer")});
        case 'M':
            return push({kind::integer, reader_.little<std::uint16_t>("an integer")});
        case 'J':
            return push({kind::integer, static_cast<std::int32_t>(reader_.little<std::uint32_t>("an integer"))});
        case '\x8a':
            return push({kind::integer, long_integer()});
        case 'G':
            reader_.take(8, "a number");
            return push({kind::real});
        case 'X':
            return push_text(reader_.little<std::uint32_t>("the length of a text"));
        case '\x8c':
            return push_text(reader_.little<std::uint8_t>("the length of a text"));
        case '\x8d':
            return push_text(reader_.little<std::uint64_t>("the length of a text"));
        default:
            return false;
        }
    }
    bool remembers(char opcode) {
        switch (opcode) {
        case 'q':
            return remember(reader_.little<std::uint8_t>("a place"));
        case 'r':
            return remember(reader_.little<std::uint32_t>("a place"));
        case '\x94':
            return remember(static_cast<std::uint32_t>(memo_.size()));
        case 'h':
            return recall(reader_.little<std::uint8_t>("a place"));
        case 'j':
            return recall(reader_.little<std::uint32_t>("a place"));
        default:
            return false;
        }
    }
    bool collects(char opcode) {
        switch (opcode) {
        case ')':
            return push({kind::tuple});
        case '\x85':
        case '\x86':
        case '\x87':
            return push_tuple(static_cast<std::size_t>(opcode - '\x84'));
        case 't':
            return push({kind::tuple, 0, {}, to_mark()});
        case ']':
            return push({kind::list});
        case '}':
            return push({kind::dictionary});
        case 'a':
            return extend(kind::list, {pop()});
        case 'e':
            return extend(kind::list, to_mark());
        case 's': {
            auto const value = pop();
            return extend(kind::dictionary, {pop(), value});
        }
        case 'u':
            return extend(kind::dictionary, to_mark());
        default:
            return false;
        }
    }
    // References to torch: globals, storages, calls.
    bool refers(char opcode) {
        switch (opcode) {
        case 'c': {
            auto const module = line();
            return push_global(std::string(module) + " " + std::string(line()));
        }
        case '\x93': {
            auto const name = text(pop());
            return push_global(std::string(text(pop())) + " " + std::string(name));
        }
        case 'Q':
            return push_storage(pop());
        case 'R': {
            auto const arguments = pop();
            return call(pop(), arguments);
        }
        case 'b':  // the attributes of an OrderedDict, which weights do not need
            expect(pop(), kind::dictionary, "a state");
            expect(top(), kind::dictionary, "an object with a state");
            return true;
        default:
            return false;
        }
    }

    [[noreturn]] void fail(std::string const& sentence) const { reader_.fail(at_, sentence); }
    object const& expect(place p, kind wanted, std::string_view what) const {
        if (objects_[p].is != wanted)
            fail("expected " + std::string(what) + " that is " + std::string(name_of(wanted)) + ", found " +
                 std::string(name_of(objects_[p].is)));
        return objects_[p];
    }
    std::string_view text(place p) const { return expect(p, kind::text, "a name").text; }

    // ---- the stack, the objects, the memo

    bool push(object one) {
        if (objects_.size() == most_objects)
            fail("expected at most " + std::to_string(most_objects) + " objects, found more");
        stack_.push_back(static_cast<place>(objects_.size()));
        objects_.push_back(std::move(one));
        return true;
    }
    place top() const {
        if (stack_.empty()) fail("expected an object on the stack, found none");
        return stack_.back();
    }
    place pop() {
        place const p = top();
        if (objects_[p].is == kind::mark) fail("expected an object on the stack, found a mark");
        stack_.pop_back();
        return p;
    }
    std::vector<place> to_mark() {
        auto const mark =
            std::find_if(stack_.rbegin(), stack_.rend(), [&](place p) { return objects_[p].is == kind::mark; });
        if (mark == stack_.rend()) fail("expected a mark on the stack, found none");
        std::vector<place> parts(mark.base(), stack_.end());
        stack_.erase(mark.base() - 1, stack_.end());
        return parts;
    }
    bool remember(std::uint32_t where) {
        place const p = top();
        if (objects_[p].is == kind::mark) fail("expected an object to remember, found a mark");
        if (memo_.size() == most_objects && !memo_.contains(where))
            fail("expected at most " + std::to_string(most_objects) + " remembered objects, found more");
        memo_[where] = p;
        return true;
    }
    bool recall(std::uint32_t where) {
        auto const found = memo_.find(where);
        if (found == memo_.end()) fail("expected an object remembered at " + std::to_string(where) + ", found none");
        stack_.push_back(found->second);
        return true;
    }

    // ---- values

    std::int64_t long_integer() {
        auto const length = reader_.little<std::uint8_t>("the length of an integer");
        if (length > 8) fail("expected an integer of at most 8 bytes, found " + std::to_string(length));
        std::uint64_t value = 0;
        for (unsigned i = 0; i < length; ++i)
            value |= std::uint64_t{reader_.little<std::uint8_t>("an integer")} << 8 * i;
        bool const negative = length > 0 && length < 8 && (value >> (8U * length - 1) & 1U) != 0;
        if (negative) value |= ~std::uint64_t{0} << 8U * length;
        return static_cast<std::int64_t>(value);
    }
    bool push_text(std::uint64_t length) { return push({kind::text, 0, reader_.text(length, "a text")}); }
    bool push_tuple(std::size_t n) {
        std::vector<place> parts(n);
        while (n-- > 0) parts[n] = pop();
        return push({kind::tuple, 0, {}, std::move(parts)});
    }
    bool extend(kind container, std::vector<place> const& parts) {
        if (container == kind::dictionary && parts.size() % 2 != 0)
            fail("expected keys and values in turn, found a key alone");
        expect(top(), container, "a container");
        auto& to = objects_[top()].parts;
        to.insert(to.end(), parts.begin(), parts.end());
        return true;
    }
    std::string_view line() {
        auto const begin = reader_.position();
        std::uint64_t length = 0;
        while (reader_.little<std::uint8_t>("a line") != '\n') ++length;
        reader_.seek(begin, "a line");
        auto const found = reader_.text(length, "a line");
        reader_.take(1, "the end of a line");
        return found;
    }
    bool push_global(std::string const& name) {
        if (auto const known = find_pickle_global(name)) return push({kind::global, 0, known->name, {}, known->type});
        fail("expected a name that dictionaries of tensors need, found GLOBAL " + in_quotes(name) +
             ", which is refused; nothing of the file was executed");
    }

    // A persistent id: ('storage', type, key, device, elements).
    bool push_storage(place id) {
        auto const& parts = expect(id, kind::tuple, "a persistent id").parts;
        if (parts.size() != 5 || text(parts[0]) != "storage")
            fail("expected a persistent id ('storage', type, key, device, elements), found another one");
        auto const& type = expect(parts[1], kind::global, "a type of storage");
        if (!type.text.ends_with("Storage")) fail("expected a type of storage, found " + in_quotes(type.text));
        auto const elements = expect(parts[4], kind::integer, "a number of elements").number;
        if (elements < 0) fail("expected at least 0 elements, found " + std::to_string(elements));
        // Every tensor copies the key of its storage, and many tensors may share a storage.
        constexpr std::size_t longest_key = 64;
        auto const key = text(parts[2]);
        if (key.size() > longest_key)
            fail("expected a storage's key of at most " + std::to_string(longest_key) + " bytes, found " +
                 std::to_string(key.size()));
        return push({kind::storage, elements, key, {}, type.type});
    }

    // Executes a known call.
    bool call(place function, place arguments) {
        auto const name = expect(function, kind::global, "a function").text;
        auto const parts = expect(arguments, kind::tuple, "arguments").parts;
        auto const need = [&](std::size_t least, std::size_t most) {
            if (parts.size() < least || parts.size() > most)
                fail("expected " + std::to_string(least) + " arguments of " + std::string(name) + ", found " +
                     std::to_string(parts.size()));
        };
        if (name == ordered_dictionary) {
            need(0, 0);
            return push({kind::dictionary});
        }
        if (name == rebuild_parameter) {
            need(3, 3);
            expect(parts[0], kind::tensor, "a parameter");
            stack_.push_back(parts[0]);
            return true;
        }
        if (name != rebuild_tensor) fail("expected a function, found " + in_quotes(name));
        need(6, 6);
        auto const& storage = expect(parts[0], kind::storage, "a storage");
        pickled_tensor made;
        made.type = storage.type;
        made.storage = storage.text;
        made.storage_elements = static_cast<std::uint64_t>(storage.number);
        auto const offset = expect(parts[1], kind::integer, "an offset").number;
        if (offset < 0) fail("expected an offset of at least 0, found " + std::to_string(offset));
        made.offset = static_cast<std::uint64_t>(offset);
        made.shape = sizes(parts[2], "a size");
        made.strides = sizes(parts[3], "a stride");
        if (made.shape.size() != made.strides.size()) fail("expected as many strides as sizes, found another number");
        tensors_.push_back(std::move(made));
        return push({kind::tensor, static_cast<std::int64_t>(tensors_.size()) - 1});
    }
    std::vector<index_t> sizes(place from, std::string_view what) const {
        constexpr std::size_t most_dimensions = 8;
        auto const& parts = expect(from, kind::tuple, what).parts;
        if (parts.size() > most_dimensions)
            fail("expected at most " + std::to_string(most_dimensions) + " dimensions, found " +
                 std::to_string(parts.size()));
        std::vector<index_t> all;
        for (place const p : parts) {
            all.push_back(expect(p, kind::integer, what).number);
            if (all.back() < 0)
                fail("expected " + std::string(what) + " of at least 0, found " + std::to_string(all.back()));
        }
        return all;
    }

    std::vector<pickled_tensor> tensors_of(place p) const {
        auto const& parts = expect(p, kind::dictionary, "weights").parts;
        std::vector<pickled_tensor> all;
        std::set<std::string_view> names;
        for (std::size_t i = 0; i < parts.size(); i += 2) {
            auto const name = text(parts[i]);
            if (!names.insert(name).second) fail("expected every tensor once, found " + in_quotes(name) + " twice");
            if (objects_[parts[i + 1]].is != kind::tensor)
                fail("expected a tensor under " + in_quotes(name) + ", found " +
                     std::string(name_of(objects_[parts[i + 1]].is)));
            all.push_back(tensors_[static_cast<std::size_t>(objects_[parts[i + 1]].number)]);
            all.back().name = name;
        }
        return all;
    }

    bounded_reader reader_;
    std::uint64_t at_ = 0;  // of the current instruction
    std::vector<place> stack_;
    std::vector<object> objects_;
    std::map<std::uint32_t, place> memo_;
    std::vector<pickled_tensor> tensors_;
};

// Reads a pickle of protocol 2 to 5 that holds a dictionary of tensors; errors name it `path`. Throws errc::model_file
// with the byte and the unexpected opcode, GLOBAL or value. Nothing is executed.
inline std::vector<pickled_tensor> read_pickled_tensors(std::span<std::byte const> bytes, std::string const& path) {
    return pickle_machine(bytes, path).run();
}

}  // namespace calm::detail
