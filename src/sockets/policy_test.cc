#include "sockets/policy.h"

#include <gtest/gtest.h>

namespace offpath::sockets {
namespace {

constexpr std::uint32_t own = 0x0a090002, kernels = 0x0a090001, local = 0x7f000001;

TEST(SocketPolicy, WithoutAnAgentNothingIsOffloaded) {
  const auto policy = read_policy(nullptr, nullptr, nullptr, nullptr);
  ASSERT_TRUE(policy);
  EXPECT_FALSE(policy->listens(0, 80));
  EXPECT_FALSE(policy->connects(kernels));
}

TEST(SocketPolicy, EverythingButLoopbackUnlessSaidOtherwise) {
  const auto policy = read_policy("unix:/a", "10.9.0.2", nullptr, nullptr);
  ASSERT_TRUE(policy);
  EXPECT_TRUE(policy->listens(0, 80));
  EXPECT_TRUE(policy->listens(own, 80));
  EXPECT_FALSE(policy->listens(local, 80));
  EXPECT_FALSE(policy->listens(kernels, 80));
  EXPECT_TRUE(policy->connects(kernels));
  EXPECT_FALSE(policy->connects(local));
  EXPECT_FALSE(policy->connects(0));
}

TEST(SocketPolicy, PortsAndNetworksAreNamed) {
  const auto policy = read_policy("unix:/a", nullptr, "80,8000", "10.9.0.0/24,192.168.1.7");
  ASSERT_TRUE(policy);
  EXPECT_TRUE(policy->listens(0, 8000));
  EXPECT_FALSE(policy->listens(0, 81));
  EXPECT_TRUE(policy->connects(kernels));
  EXPECT_FALSE(policy->connects(0x0a090101));
  EXPECT_TRUE(policy->connects(0xc0a80107));
  const auto none = read_policy("unix:/a", nullptr, "", "");
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->listens(0, 80));
  EXPECT_FALSE(none->connects(kernels));
}

TEST(SocketPolicy, WhatIsWrongIsNamed) {
  for (const auto& [listen, connect] :
       {std::pair{"80,x", "10.0.0.0/8"}, {"70000", "10.0.0.0/8"}, {"80", "10.0.0.0/33"}, {"80", "ten"}}) {
    const auto policy = read_policy("unix:/a", nullptr, listen, connect);
    ASSERT_FALSE(policy) << listen << ' ' << connect;
    EXPECT_EQ(policy.error().code, Error::invalid);
  }
  EXPECT_FALSE(read_policy("unix:/a", "here", nullptr, nullptr));
  EXPECT_FALSE(read_policy("unix:/a", nullptr, nullptr, nullptr, "yes"));
}

TEST(SocketPolicy, FallsBackOnlyWhenItIsTold) {
  EXPECT_FALSE(read_policy("unix:/a", nullptr, nullptr, nullptr)->falls_back);
  EXPECT_FALSE(read_policy("unix:/a", nullptr, nullptr, nullptr, "0")->falls_back);
  EXPECT_TRUE(read_policy("unix:/a", nullptr, nullptr, nullptr, "1")->falls_back);
}

TEST(SocketsPolicy, HowManySocketsMayBeIsWithinBounds) {
  const auto read = [](const char* sockets) {
    return read_policy("unix:/a", nullptr, nullptr, nullptr, nullptr, sockets);
  };
  EXPECT_EQ(read(nullptr)->sockets, 1024u);
  EXPECT_EQ(read("4096")->sockets, 4096u);
  for (const char* wrong : {"15", "65537", "many", ""}) EXPECT_FALSE(read(wrong)) << wrong;
}

TEST(SocketsPolicy, RingsAreSmallAtFirstUnlessSaidOtherwise) {
  const auto read = [](const char* ring) {
    return read_policy("unix:/a", nullptr, nullptr, nullptr, nullptr, nullptr, ring);
  };
  EXPECT_EQ(read(nullptr)->options(0).send_bytes, 64u << 10);
  EXPECT_EQ(read(nullptr)->options(0).receive_bytes, 16u << 10);
  EXPECT_EQ(read("524288")->options(0).receive_bytes, 512u << 10);
  EXPECT_EQ(read("524288")->options(0).send_bytes, 512u << 10);
  for (const char* wrong : {"2048", "8388608", "20000", "much", ""}) EXPECT_FALSE(read(wrong)) << wrong;
}

// What all sockets may use at a time is the same as with fixed rings of 1.5 MiB, whatever the first ones are.
TEST(SocketsPolicy, LargerRingsShareTheRest) {
  for (const char* ring : {"16384", "262144"}) {
    const auto policy = read_policy("unix:/a", nullptr, nullptr, nullptr, nullptr, "1024", ring);
    const auto options = policy->options(0);
    EXPECT_EQ(options.pool_bytes + 1024ull * (options.send_bytes + options.receive_bytes), 1536ull << 20);
  }
  EXPECT_EQ(read_policy("unix:/a", nullptr, nullptr, nullptr, nullptr, "16")->options(0).pool_bytes, 24u << 20);
}

}  // namespace
}  // namespace offpath::sockets
