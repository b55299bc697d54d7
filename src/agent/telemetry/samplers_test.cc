#include "agent/telemetry/samplers.h"

#include <gtest/gtest.h>

#include <unistd.h>

namespace offpath::agent {
namespace {

std::shared_ptr<const SourceSettings> file_source(const std::string& file, const std::string& field) {
  auto source = std::make_shared<SourceSettings>();
  source->file = file;
  source->fields = {field};
  return source;
}

// Runs the loop until there are so many samples.
class Until final : public loop::Poller {
 public:
  Until(loop::Loop& loop, const Samplers& samplers, std::uint64_t samples)
      : loop_(loop), samplers_(samplers), samples_(samples) {
    loop_.add(*this);
    loop_.run();
    loop_.remove(*this);
  }
  bool poll(TimeNs now) override {
    next_at_ = now + millisecond_ns;
    if (samplers_.status(now).at(0).samples >= samples_) loop_.stop();
    return false;
  }
  bool fall_asleep(TimeNs) override { return true; }
  [[nodiscard]] TimeNs next_deadline() const override { return next_at_; }

 private:
  loop::Loop& loop_;
  const Samplers& samplers_;
  std::uint64_t samples_;
  TimeNs next_at_ = 0;
};

// A sensor may take milliseconds to read, and the loop has connections to serve.
TEST(Samplers, ReadTheMachinesSourcesBesideTheLoop) {
  auto loop = loop::Loop::make({});
  ASSERT_TRUE(loop);
  SamplingSettings settings;
  settings.interval_ns = millisecond_ns;
  settings.own_name = "here";
  settings.sources = {file_source("/proc/thread-self/stat", "reader")};  // its first number
  auto samplers = Samplers::make(**loop, settings, monotonic_ns());
  ASSERT_TRUE(samplers) << samplers.error().message;
  (*loop)->add(**samplers);
  const Until read(**loop, **samplers, 3);
  std::size_t seen = 0;
  (*samplers)->visit([&](const exchange::Schema& schema, const exchange::Sample& sample, TimeNs) {
    ++seen;
    ASSERT_EQ(schema.fields.size(), 1u);
    EXPECT_EQ(sample.values.missing(), 0u);
    EXPECT_NE(sample.values.u64(0), static_cast<std::uint64_t>(::gettid()));
  });
  EXPECT_EQ(seen, 1u);
  (*loop)->remove(**samplers);
}

}  // namespace
}  // namespace offpath::agent
