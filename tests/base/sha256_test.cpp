#include "calm/base/detail/sha256.hpp"

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_CASE(known_digests) {
    calm::sha256 empty;
    BOOST_TEST(empty.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    calm::sha256 abc;
    abc.add("abc");
    BOOST_TEST(abc.hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    calm::sha256 million;
    for (int i = 0; i < 1000; ++i) million.add(std::string(1000, 'a'));
    BOOST_TEST(million.hex() == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    calm::sha256 number;
    number.add_u32(0x04030201u);
    calm::sha256 bytes;
    bytes.add("\1\2");
    bytes.add("\3\4");
    BOOST_TEST(number.hex() == bytes.hex());
}

#ifdef __x86_64__
BOOST_AUTO_TEST_CASE(instructions_and_portable_code_agree,
                     *boost::unit_test::precondition([](auto) { return calm::detail::has_sha_instructions(); })) {
    std::array<std::uint32_t, 8> by_instructions{1, 2, 3, 4, 5, 6, 7, 8};
    auto portable = by_instructions;
    std::array<std::uint8_t, 64> block{};
    for (unsigned i = 0; i < 1000; ++i) {
        for (std::size_t j = 0; j < block.size(); ++j) block[j] = static_cast<std::uint8_t>(i * 131 + j * j * 7);
        calm::detail::add_sha256_block_by_instructions(by_instructions.data(), block.data());
        calm::detail::add_sha256_block(portable.data(), block.data());
        BOOST_REQUIRE(by_instructions == portable);
    }
}
#endif
