#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>

namespace offpath {
namespace {

TEST(Errors, NumbersAreDenseAndNamesAndTextsDiffer) {
  std::set<std::string_view> names;
  std::set<std::string_view> texts;
  int expected = 0;
#define X(name, number, text)                \
  EXPECT_EQ(number, ++expected);             \
  EXPECT_EQ(error_name(Error::name), #name); \
  names.insert(error_name(Error::name));     \
  texts.insert(error_text(Error::name));
  OFFPATH_ERRORS(X)
#undef X
  EXPECT_EQ(names.size(), static_cast<std::size_t>(expected));
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(expected));
}

TEST(Errors, AnUnknownNumberIsNamedSo) {
  EXPECT_EQ(error_name(static_cast<Error>(0)), "unknown");
  EXPECT_EQ(error_text(static_cast<Error>(999)), "unknown error");
}

TEST(Fail, CarriesCodeAndMessage) {
  Status status = fail(Error::too_large, "rows: {} given, at most {}", 11, 10);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Error::too_large);
  EXPECT_EQ(status.error().message, "rows: 11 given, at most 10");
}

TEST(FailErrno, NamesTheCallAndMapsTheNumber) {
  Status status = fail_errno(ENOSPC, "write frames.arrow");
  EXPECT_EQ(status.error().code, Error::no_space);
  EXPECT_EQ(status.error().message, "write frames.arrow: No space left on device");
  EXPECT_EQ(Status(fail_errno(ECONNRESET, "read")).error().code, Error::peer_lost);
  EXPECT_EQ(Status(fail_errno(EPERM, "open")).error().code, Error::denied);
  EXPECT_EQ(Status(fail_errno(EFAULT, "process_vm_readv")).error().code, Error::unreadable);
  EXPECT_EQ(Status(fail_errno(EISDIR, "open")).error().code, Error::io);
}

Result<int> half(int number) {
  if (number % 2 != 0) return fail(Error::invalid, "{} is odd", number);
  return number / 2;
}

Result<int> quarter(int number) {
  OFP_ASSIGN(int first, half(number));
  OFP_ASSIGN(int second, half(first));
  return second;
}

Status is_even(int number) {
  OFP_TRY(half(number));
  return {};
}

TEST(Try, PassesTheFailureOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
  EXPECT_TRUE(is_even(2));
  EXPECT_EQ(is_even(1).error().message, "1 is odd");
}

Result<std::unique_ptr<int>> make(int number) { return std::make_unique<int>(number); }

Result<int> through_a_move_only_type() {
  OFP_ASSIGN(std::unique_ptr<int> number, make(7));
  return *number;
}

TEST(Assign, MovesWhatCannotBeCopied) { EXPECT_EQ(through_a_move_only_type().value(), 7); }

TEST(Brief, OfALongTextPeopleSeeItsBeginning) {
  EXPECT_EQ(brief("step0"), "step0");
  EXPECT_EQ(brief(std::string(160, 'k')).size(), 160u);
  EXPECT_EQ(brief(std::string(65536, 'k')), std::string(80, 'k') + "… of 65536 bytes");
  std::string umlauts = "x";
  while (umlauts.size() < 200) umlauts += "ö";
  EXPECT_EQ(brief(umlauts), umlauts.substr(0, 79) + "… of 201 bytes");
}

TEST(Assert, StopsTheProgramAndSaysWhere) {
  OFP_ASSERT(1 + 1 == 2);
  EXPECT_DEATH(OFP_ASSERT(1 + 1 == 3), "status_test.cc:[0-9]+: assertion failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace offpath
