#include "calm/io/detail/pickle.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include "calm/base/random.hpp"
#include "support/archives.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::test;
using namespace calm::test::pickled;
using namespace std::string_literals;

namespace {

std::vector<detail::pickled_tensor> read(std::string const& file) {
    return detail::read_pickled_tensors(std::as_bytes(std::span(file)), "some.pkl");
}
std::string complaint(std::string const& file) {
    try {
        read(file);
    } catch (error const& thrown) {
        BOOST_TEST((thrown.code() == errc::model_file));
        return thrown.what();
    }
    return "read";
}
std::string one(made_tensor const& t) {
    return dictionary(text("x") + t.made());
}

}  // namespace

BOOST_AUTO_TEST_CASE(dictionaries_of_tensors_are_read) {
    auto const tensors =
        read(dictionary(text("a") + made_tensor{.offset = 3}.made() + "q\x01" + text("tied") + "h\x01" + text("b") +
                        made_tensor{"BFloat16Storage", "7", 1, 0, {}, {}}.made()));
    BOOST_REQUIRE(tensors.size() == 3U);
    BOOST_TEST(tensors[0].name == "a");
    BOOST_TEST((tensors[0].type == stored_type::f32));
    BOOST_TEST(tensors[0].storage == "0");
    BOOST_TEST(tensors[0].storage_elements == 6U);
    BOOST_TEST(tensors[0].offset == 3U);
    BOOST_TEST((tensors[0].shape == std::vector<index_t>{2, 3}));
    BOOST_TEST((tensors[0].strides == std::vector<index_t>{3, 1}));
    BOOST_TEST(tensors[1].name == "tied");
    BOOST_TEST(tensors[1].offset == 3U);
    BOOST_TEST((tensors[2].type == stored_type::bf16));
    BOOST_TEST(tensors[2].shape.empty());
    BOOST_TEST(read("\x80\x02}.").empty());
}

BOOST_AUTO_TEST_CASE(every_protocol_s_way_of_saying_it_is_read) {
    auto const t = made_tensor{}.made();
    std::string const parameter = global("torch._utils", "_rebuild_parameter") + "(" + t + "\x88" + ordered + "tR";
    std::string const named = std::string("\x8c\x0b") + "collections\x8c\x0bOrderedDict\x93)R";
    std::vector<std::string> const files{
        dictionary(text("x") + parameter),
        "\x80\x02}" + text("x") + t + "s.",                                                       // single items
        "\x80\x02" + ordered + "(" + text("x") + t + "u}" + text("_metadata") + ordered + "sb.",  // with attributes
        "\x80\x04\x95" + little(9, 8) + "}\x94\x8c\x01x" + t + "s.",
        "\x80\x05" + named + "\x8d" + little(1, 8) + "x" + t + "s.",
        "\x80\x02}" + text("x") + global("torch._utils", "_rebuild_tensor_v2") + "(" + made_tensor{}.id() +
            "K\x00M\x02\x00J\x03\x00\x00\x00\x86K\x03K\x01\x86\x89"s + ordered + "tRs.",
    };
    for (auto const& file : files) {
        auto const said = complaint(file);
        BOOST_TEST(said == "read");
        if (said != "read") continue;
        auto const tensors = read(file);
        BOOST_TEST(tensors.size() == 1U);
        BOOST_TEST(tensors.at(0).name == "x");
        BOOST_TEST((tensors.at(0).shape == std::vector<index_t>{2, 3}));
    }
}

BOOST_AUTO_TEST_CASE(pickles_of_other_objects_are_refused_by_name) {
    struct bad {
        std::string file;
        std::string says;
    };
    std::string const nothing_ran = ", which is refused; nothing of the file was executed";
    auto const hostile = [](std::string_view module, std::string_view name) {
        return "\x80\x02" + global(module, name) + "(" + text("echo hacked") + "tR.";
    };
    auto const refused = [&](std::string const& name) {
        return "byte 2: expected a name that dictionaries of tensors need, found GLOBAL '" + name + "'" + nothing_ran;
    };
    auto const opcode = [&](std::string const& name) {
        return "expected an opcode of dictionaries of tensors, found opcode " + name + nothing_ran;
    };
    auto const id = [](std::string const& inside) { return "\x80\x02(" + inside + "tQ."; };
    auto const call = [](std::string const& arguments) {
        return "\x80\x02" + global("torch._utils", "_rebuild_tensor_v2") + "(" + arguments + "tR.";
    };
    auto const storage = made_tensor{}.id();
    std::vector<bad> const files{
        // names that other readers would call
        {hostile("os", "system"), refused("os system")},
        {hostile("posix", "system"), refused("posix system")},
        {hostile("builtins", "eval"), refused("builtins eval")},
        {hostile("builtins", "exec"), refused("builtins exec")},
        {hostile("__builtin__", "getattr"), refused("__builtin__ getattr")},
        {hostile("subprocess", "Popen"), refused("subprocess Popen")},
        {hostile("torch", "load"), refused("torch load")},
        {hostile("torch._utils", "_rebuild_tensor"), refused("torch._utils _rebuild_tensor")},
        {hostile("torch FloatStorage", ""), refused("torch FloatStorage ")},
        {hostile("torch.jit", "load"), refused("torch.jit load")},
        {hostile("numpy.core.multiarray", "_reconstruct"), refused("numpy.core.multiarray _reconstruct")},
        {hostile(std::string(1000, 'a'), "b"), "..'" + nothing_ran},
        {"\x80\x04\x8c\x02os\x8c\x06system\x93)R.", "found GLOBAL 'os system'"},
        {"\x80\x04K\x01K\x02\x93.", "expected a name that is a text, found an integer"},
        // opcodes
        {"\x80\x02(ios\nsystem\n.", "byte 3: " + opcode("0x69 (INST)")},
        {"\x80\x02(" + global("torch", "FloatStorage") + "o.", opcode("0x6f (OBJ)")},
        {"\x80\x02)\x81.", opcode("0x81 (NEWOBJ)")},
        {"\x80\x04)\x92.", opcode("0x92 (NEWOBJ_EX)")},
        {"\x80\x02\x82\x01.", opcode("0x82 (EXT1)")},
        {"\x80\x02P0\n.", opcode("0x50 (PERSID)")},
        {"\x80\x02"
         "0.",
         opcode("0x30 (POP)")},
        {"\x80\x02"
         "1.",
         opcode("0x31 (POP_MARK)")},
        {"\x80\x02"
         "2.",
         opcode("0x32 (DUP)")},
        {"\x80\x02I1\n.", opcode("0x49 (INT)")},
        {"\x80\x02S'a'\n.", opcode("0x53 (STRING)")},
        {"\x80\x02U\x01"
         "a.",
         opcode("0x55 (SHORT_BINSTRING)")},
        {"\x80\x02V"
         "a\n.",
         opcode("0x56 (UNICODE)")},
        {"\x80\x05\x97.", opcode("0x97 (NEXT_BUFFER)")},
        {"\x80\x04\x8f.", opcode("0x8f (EMPTY_SET)")},
        {"\x80\x02\xff.", opcode("0xff, which no protocol has")},
        {"\x80\x01}.", "expected protocol 2 to 5, found 1"},
        {"\x80\x06}.", "expected protocol 2 to 5, found 6"},
        // end, stack and memo
        {"", "byte 0: expected an opcode of 1 byte, found 0 bytes up to the end of the file"},
        {"\x80\x02}", "expected an opcode of 1 byte, found 0 bytes"},
        {"\x80\x02.", "expected one object, found 0"},
        {"\x80\x02}}.", "expected one object, found 2"},
        {"\x80\x02}.}", "expected the pickle to end here, found further bytes"},
        {"\x80\x02(.", "expected an object on the stack, found a mark"},
        {"\x80\x02R.", "expected an object on the stack, found none"},
        {"\x80\x02t.", "expected a mark on the stack, found none"},
        {"\x80\x02}q\x01h\x02.", "expected an object remembered at 2, found none"},
        {"\x80\x02}j" + little(0xFFFFFFFF, 4) + ".", "expected an object remembered at 4294967295, found none"},
        {"\x80\x02(q\x01.", "expected an object to remember, found a mark"},
        {"\x80\x02q\x01.", "expected an object on the stack, found none"},
        {"\x80\x02K\x01K\x02\x87.", "expected an object on the stack, found none"},
        {"\x80\x02" + std::string(200'000, '}') + ".", "expected at most 131072 objects, found more"},
        {"\x80\x02" + std::string(9 << 20, 'N') + ".", "expected a pickle of at most 8388608 bytes, found 9437187"},
        {"\x80\x04\x95" + little(1000, 8) + "}.", "expected a frame inside the pickle, found a longer one"},
        {"\x80\x02X" + little(0xFFFFFFFF, 4) + "a", "expected a text of 4294967295 bytes, found 1 byte"},
        {"\x80\x04\x8d" + little(~0ULL, 8) + "a", "expected a text of 18446744073709551615 bytes, found 1 byte"},
        {"\x80\x02\x8a\x09" + std::string(9, '\0') + ".", "expected an integer of at most 8 bytes, found 9"},
        {"\x80\x02"
         "cos\nsyst",
         "expected a line of 1 byte, found 0 bytes"},
        // misplaced values
        {"\x80\x02K\x01.", "expected weights that is a dictionary, found an integer"},
        {"\x80\x02].", "expected weights that is a dictionary, found a list"},
        {dictionary(text("a")), "expected keys and values in turn, found a key alone"},
        {dictionary("K\x01" + made_tensor{}.made()), "expected a name that is a text, found an integer"},
        {dictionary(text("a") + "}"), "expected a tensor under 'a', found a dictionary"},
        {dictionary(text("a") + "K\x01"), "expected a tensor under 'a', found an integer"},
        {dictionary(text("a") + made_tensor{}.made() + text("a") + made_tensor{}.made()), "found 'a' twice"},
        {"\x80\x02K\x01(" + text("a") + "K\x01u.", "expected a container that is a dictionary, found an integer"},
        {"\x80\x02}K\x01"
         "a.",
         "expected a container that is a list, found a dictionary"},
        {"\x80\x02K\x01}b.", "expected an object with a state that is a dictionary, found an integer"},
        {"\x80\x02}K\x01"
         "b.",
         "expected a state that is a dictionary, found an integer"},
        {"\x80\x02K\x01)R.", "expected a function that is a global name, found an integer"},
        {"\x80\x02" + global("torch", "FloatStorage") + ")R.", "expected a function, found 'torch FloatStorage'"},
        {"\x80\x02" + global("collections", "OrderedDict") + "(K\x01tR.", "expected 0 arguments of collections"},
        {"\x80\x02" + global("collections", "OrderedDict") + "}R.", "expected arguments that is a tuple"},
        // storages
        {id(""), "expected a persistent id ('storage', type, key, device, elements), found another one"},
        {id(text("module") + global("torch", "FloatStorage") + text("0") + text("cpu") + "K\x01"), "found another one"},
        {id(text("storage") + text("FloatStorage") + text("0") + text("cpu") + "K\x01"),
         "expected a type of storage that is a global name, found a text"},
        {id(text("storage") + global("collections", "OrderedDict") + text("0") + text("cpu") + "K\x01"),
         "expected a type of storage, found 'collections OrderedDict'"},
        {id(text("storage") + global("torch", "FloatStorage") + "K\x00"s + text("cpu") + "K\x01"),
         "expected a name that is a text, found an integer"},
        {id(text("storage") + global("torch", "FloatStorage") + text("0") + text("cpu") + integer(-1)),
         "expected at least 0 elements, found -1"},
        {"\x80\x02K\x01Q.", "expected a persistent id that is a tuple, found an integer"},
        {id(text("storage") + global("torch", "ComplexFloatStorage") + text("0") + text("cpu") + "K\x01"),
         "found GLOBAL 'torch ComplexFloatStorage'"},
        {id(text("storage") + global("torch.storage", "UntypedStorage") + text("0") + text("cpu") + "K\x01"),
         "found GLOBAL 'torch.storage UntypedStorage'"},
        // tensors
        {call(""), "expected 6 arguments of torch._utils _rebuild_tensor_v2, found 0"},
        {call(storage + "K\x00"s + tuple({1}) + tuple({1}) + "\x89" + ordered + "K\x01"), "found 7"},
        {call("K\x01K\x01))\x89" + ordered), "expected a storage that is a storage, found an integer"},
        {call(storage + "N))\x89" + ordered), "expected an offset that is an integer, found None"},
        {call(storage + integer(-1) + "))\x89" + ordered), "expected an offset of at least 0, found -1"},
        {call(storage + "K\x00]"s + ")\x89" + ordered), "expected a size that is a tuple, found a list"},
        {call(storage + "K\x00"s + tuple({-2}) + tuple({1}) + "\x89" + ordered), "a size of at least 0, found -2"},
        {call(storage + "K\x00"s + tuple({2}) + tuple({-1}) + "\x89" + ordered), "a stride of at least 0, found -1"},
        {call(storage + "K\x00"s + tuple({2}) + tuple({1, 1}) + "\x89" + ordered), "expected as many strides as sizes"},
        {call(storage + "K\x00(\x88t)\x89"s + ordered), "expected a size that is an integer, found a truth value"},
        {call(storage + "K\x00(G"s + std::string(8, '\0') + "t)\x89" + ordered), "found a number"},
        {call(storage + "K\x00"s + tuple(std::vector<std::int64_t>(9, 1)) + ")\x89" + ordered),
         "expected at most 8 dimensions, found 9"},
        {"\x80\x02" + global("torch._utils", "_rebuild_parameter") + "(K\x01\x88" + ordered + "tR.",
         "expected a parameter that is a tensor, found an integer"},
    };
    BOOST_TEST(files.size() >= 80U);
    for (auto const& file : files) {
        auto const said = complaint(file.file);
        BOOST_TEST(has(said, file.says), "expected '" << file.says << "', found '" << said << "'");
        BOOST_TEST(said.starts_with("some.pkl, byte "), said);
        BOOST_TEST(has(said, "expected "), said);
        BOOST_TEST(has(said, "found "), said);
    }
}

BOOST_AUTO_TEST_CASE(depth_and_cycles_cost_nothing) {
    // Deep nesting, and a list that contains itself: objects are never traversed.
    std::string deep = "\x80\x02";
    for (int i = 0; i < 100'000; ++i) deep += ']';
    for (int i = 0; i < 99'999; ++i) deep += 'a';
    BOOST_TEST(has(complaint(deep + "."), "expected weights that is a dictionary, found a list"));
    std::string const cycle = "\x80\x02]q\x01h\x01"
                              "a.";
    BOOST_TEST(complaint(cycle) == "some.pkl, byte 8: expected weights that is a dictionary, found a list");
    std::string marks = "\x80\x02" + std::string(60'000, '(');
    for (int i = 0; i < 60'000; ++i) marks += 't';
    BOOST_TEST(has(complaint(marks + "."), "found a tuple"));
}

BOOST_AUTO_TEST_CASE(every_cut_and_flipped_byte_is_an_error_or_a_dictionary) {
    auto const whole = one({});
    for (std::size_t cut = 0; cut < whole.size(); ++cut) BOOST_TEST(complaint(whole.substr(0, cut)) != "read");
    random_sequence random(key{.seed = 7});
    for (int i = 0; i < 30000; ++i) {
        auto broken = whole;
        for (std::uint32_t n = random.below(3) + 1; n-- > 0;)
            broken[random.below(static_cast<std::uint32_t>(whole.size()))] = static_cast<char>(random.below(256));
        static_cast<void>(complaint(broken));
    }
}
