#pragma once
// The names of pickle opcodes, for messages about refused ones.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace calm::detail {

struct opcode_name {
    char code;
    std::string_view name;
};
inline constexpr std::array<opcode_name, 68> opcode_names{{{'(', "MARK"},
                                                           {')', "EMPTY_TUPLE"},
                                                           {'.', "STOP"},
                                                           {'0', "POP"},
                                                           {'1', "POP_MARK"},
                                                           {'2', "DUP"},
                                                           {'B', "BINBYTES"},
                                                           {'C', "SHORT_BINBYTES"},
                                                           {'F', "FLOAT"},
                                                           {'G', "BINFLOAT"},
                                                           {'I', "INT"},
                                                           {'J', "BININT"},
                                                           {'K', "BININT1"},
                                                           {'L', "LONG"},
                                                           {'M', "BININT2"},
                                                           {'N', "NONE"},
                                                           {'P', "PERSID"},
                                                           {'Q', "BINPERSID"},
                                                           {'R', "REDUCE"},
                                                           {'S', "STRING"},
                                                           {'T', "BINSTRING"},
                                                           {'U', "SHORT_BINSTRING"},
                                                           {'V', "UNICODE"},
                                                           {'X', "BINUNICODE"},
                                                           {']', "EMPTY_LIST"},
                                                           {'a', "APPEND"},
                                                           {'b', "BUILD"},
                                                           {'c', "GLOBAL"},
                                                           {'d', "DICT"},
                                                           {'e', "APPENDS"},
                                                           {'g', "GET"},
                                                           {'h', "BINGET"},
                                                           {'i', "INST"},
                                                           {'j', "LONG_BINGET"},
                                                           {'l', "LIST"},
                                                           {'o', "OBJ"},
                                                           {'p', "PUT"},
                                                           {'q', "BINPUT"},
                                                           {'r', "LONG_BINPUT"},
                                                           {'s', "SETITEM"},
                                                           {'t', "TUPLE"},
                                                           {'u', "SETITEMS"},
                                                           {'}', "EMPTY_DICT"},
                                                           {'\x80', "PROTO"},
                                                           {'\x81', "NEWOBJ"},
                                                           {'\x82', "EXT1"},
                                                           {'\x83', "EXT2"},
                                                           {'\x84', "EXT4"},
                                                           {'\x85', "TUPLE1"},
                                                           {'\x86', "TUPLE2"},
                                                           {'\x87', "TUPLE3"},
                                                           {'\x88', "NEWTRUE"},
                                                           {'\x89', "NEWFALSE"},
                                                           {'\x8a', "LONG1"},
                                                           {'\x8b', "LONG4"},
                                                           {'\x8c', "SHORT_BINUNICODE"},
                                                           {'\x8d', "BINUNICODE8"},
                                                           {'\x8e', "BINBYTES8"},
                                                           {'\x8f', "EMPTY_SET"},
                                                           {'\x90', "ADDITEMS"},
                                                           {'\x91', "FROZENSET"},
                                                           {'\x92', "NEWOBJ_EX"},
                                                           {'\x93', "STACK_GLOBAL"},
                                                           {'\x94', "MEMOIZE"},
                                                           {'\x95', "FRAME"},
                                                           {'\x96', "BYTEARRAY8"},
                                                           {'\x97', "NEXT_BUFFER"},
                                                           {'\x98', "READONLY_BUFFER"}}};

// "opcode 0x63 (GLOBAL)"
inline std::string opcode_text(std::uint8_t code) {
    constexpr std::string_view hex = "0123456789abcdef";
    std::string text = "opcode 0x";
    (text += hex[code >> 4]) += hex[code & 15U];
    for (auto const& one : opcode_names)
        if (static_cast<std::uint8_t>(one.code) == code) return text + " (" + std::string(one.name) + ")";
    return text + ", which no protocol has";
}

}  // namespace calm::detail
