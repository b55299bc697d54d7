#include "base/text.h"

#include <cstdint>

#include <gtest/gtest.h>

using namespace offpath;

TEST(Text, BlanksAreTakenFromItsEndsOnly) {
  EXPECT_EQ(trimmed("  sum( jobs )  "), "sum( jobs )");
  EXPECT_EQ(trimmed("   "), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(Text, ANumberIsAllOfTheText) {
  EXPECT_EQ(number_of<std::uint32_t>("42"), 42u);
  EXPECT_EQ(number_of<std::int64_t>("-3"), -3);
  EXPECT_EQ(number_of<double>("2.5e3"), 2500.0);
  for (const char* text : {"", "42 ", " 42", "42x", "0x2a", "-1", "4294967296"})
    EXPECT_FALSE(number_of<std::uint32_t>(text)) << text;
}

TEST(Text, ControlCharactersOfAsciiAndC1AreFoundInOnePlace) {
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(is_control(static_cast<char>(byte)), byte < 0x20 || byte == 0x7F) << byte;
  EXPECT_EQ(control_bytes("\n"), 1u);
  EXPECT_EQ(control_bytes("\xC2\x9F"), 2u);
  for (const char* text : {"", "a", "\xC2", "\xC2\xA0", "\xC3\x85"}) EXPECT_EQ(control_bytes(text), 0u) << text;
}

TEST(Text, Utf8IsWellFormedAsAWhole) {
  for (const char* good : {"", "particles", "\u00E4\u20AC", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(is_utf8(good));
  for (const char* bad : {"\x80", "a\xC3", "\xC0\x80", "\xE0\x9F\x80", "\xED\xA0\x80", "\xF0\x8F\x80\x80",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82z"})
    EXPECT_FALSE(is_utf8(bad)) << printable(bad);
}

TEST(Text, PrintableKeepsLettersOfEveryAlphabet) {
  EXPECT_EQ(printable("lmp \xC3\xA4\xE2\x82\xAC\xF0\x9F\x90\x8E"), "lmp \xC3\xA4\xE2\x82\xAC\xF0\x9F\x90\x8E");
  EXPECT_EQ(printable("a\nb\x7F\xC2\x85"),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBD");
}
