#include "channel/ring.h"

#include <gtest/gtest.h>

#include <random>

namespace offpath::channel {
namespace {

using wire::Slot;

std::vector<std::byte> some_bytes(std::size_t length, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(length);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Slot slot_at(const std::vector<Slot>& ring, std::uint64_t position) { return ring[position & (ring.size() - 1)]; }

TEST(Ring, EntriesOfAllLengthsComeBackOverManyLaps) {
  std::vector<Slot> ring(64);
  RingWriter writer(reinterpret_cast<std::byte*>(ring.data()), 64);
  EntryReader reader(64, EntryReader::Tickets::counted);
  for (std::uint64_t ticket = 1; ticket <= 1000; ++ticket) {
    const auto payload = some_bytes(ticket * 7 % 1500, static_cast<unsigned>(ticket));
    ASSERT_TRUE(writer.fits(payload.size(), reader.position()));
    writer.write(static_cast<std::uint8_t>(ticket % 200 + 1), ticket, payload);
    bool complete = false;
    while (reader.position() < writer.position()) {
      const Slot slot = slot_at(ring, reader.position());
      ASSERT_TRUE(reader.verifies(slot));
      Entry entry;
      auto taken = reader.take(slot, entry);
      ASSERT_TRUE(taken) << taken.error().message;
      if (!*taken) continue;
      complete = true;
      EXPECT_EQ(entry.ticket, ticket);
      EXPECT_EQ(entry.kind, ticket % 200 + 1);
      EXPECT_EQ(std::vector<std::byte>(entry.payload.begin(), entry.payload.end()), payload);
    }
    ASSERT_TRUE(complete);
  }
  EXPECT_GT(writer.position(), 64u * 10);
}

TEST(Ring, AnEntryLargerThanTheRingComesInParts) {
  std::vector<Slot> ring(64);
  RingWriter writer(reinterpret_cast<std::byte*>(ring.data()), 64);
  EntryReader reader(64, EntryReader::Tickets::given);
  const auto payload = some_bytes(10'000, 3);
  const std::uint64_t all = wire::slots_for(payload.size());
  ASSERT_GT(all, 3 * 64u);
  std::uint64_t completed = 0;
  for (std::uint64_t written = 0; written < all;) {
    const std::uint64_t count = std::min<std::uint64_t>(all - written, 1 + written % 64);
    writer.write(5, 9, payload, written, count);
    written += count;
    while (reader.position() < writer.position()) {
      Entry entry;
      const Slot slot = slot_at(ring, reader.position());
      ASSERT_TRUE(reader.verifies(slot));
      const auto taken = reader.take(slot, entry);
      ASSERT_TRUE(taken) << taken.error().message;
      if (!*taken) continue;
      ++completed;
      EXPECT_EQ(written, all);
      EXPECT_EQ(std::vector<std::byte>(entry.payload.begin(), entry.payload.end()),
                std::vector<std::byte>(payload.begin() + wire::reply_head_bytes, payload.end()));
      EXPECT_EQ(entry.ticket, static_cast<std::uint64_t>(load<std::uint32_t>(payload.data())) << 32 | 9);
    }
  }
  EXPECT_EQ(completed, 1u);
}

TEST(Ring, AnEntryOutsideTakesOneSlot) {
  std::vector<Slot> ring(64);
  RingWriter writer(reinterpret_cast<std::byte*>(ring.data()), 64);
  EntryReader reader(64, EntryReader::Tickets::counted);
  writer.write_outside(7, 1, {100'000, 0xABCDu});
  EXPECT_EQ(writer.position(), 1u);
  Entry entry;
  ASSERT_TRUE(*reader.take(ring[0], entry));
  EXPECT_TRUE(entry.outside);
  const auto named = load<wire::OutsideEntry>(entry.payload.data());
  EXPECT_EQ(named.length, 100'000u);
  EXPECT_EQ(named.crc32c, 0xABCDu);
}

TEST(Ring, FitsCountsWholeSlots) {
  std::vector<Slot> ring(64);
  RingWriter writer(reinterpret_cast<std::byte*>(ring.data()), 64);
  EXPECT_TRUE(writer.fits(64 * wire::slot_payload_bytes, 0));
  EXPECT_FALSE(writer.fits(64 * wire::slot_payload_bytes + 1, 0));
  writer.write(1, 1, {});
  EXPECT_FALSE(writer.fits(64 * wire::slot_payload_bytes, 0));
  EXPECT_TRUE(writer.fits(64 * wire::slot_payload_bytes, 1));
}

TEST(Ring, EveryChangedByteOfASlotIsNoticed) {
  std::vector<Slot> ring(64);
  RingWriter writer(reinterpret_cast<std::byte*>(ring.data()), 64);
  writer.write(7, 1, some_bytes(48, 1));
  EntryReader reader(64, EntryReader::Tickets::counted);
  ASSERT_TRUE(reader.verifies(ring[0]));
  for (std::size_t byte = 0; byte < sizeof(Slot); ++byte)
    for (int bit = 0; bit < 8; ++bit) {
      Slot changed = ring[0];
      reinterpret_cast<std::uint8_t*>(&changed)[byte] ^= static_cast<std::uint8_t>(1 << bit);
      EXPECT_FALSE(reader.verifies(changed)) << "byte " << byte << " bit " << bit;
    }
}

TEST(Ring, ASlotOfTheLapBeforeDoesNotVerify) {
  std::vector<Slot> ring(64);
  RingWriter writer(reinterpret_cast<std::byte*>(ring.data()), 64);
  EntryReader reader(64, EntryReader::Tickets::counted);
  for (std::uint64_t i = 1; i <= 64; ++i) writer.write(1, i, {});
  Entry entry;
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(reader.take(ring[static_cast<std::size_t>(i)], entry));
  EXPECT_FALSE(reader.verifies(ring[0]));
  EXPECT_NE(reader.explain(ring[0]).message.find("lap 1, expected lap 2"), std::string::npos);
}

// A slot with a right checksum may still be malicious.
Slot forged(std::uint8_t kind, std::uint8_t flags, std::uint8_t length, std::uint32_t ticket, std::uint32_t lap = 1) {
  Slot slot{};
  slot.header = {lap, 0, ticket, kind, flags, length, 0};
  slot.header.crc32c = wire::slot_checksum(slot);
  return slot;
}

TEST(Ring, ForgedSlotsAreRefusedByName) {
  struct Case {
    std::vector<Slot> slots;
    const char* message;
  };
  const std::vector<Case> cases = {
      {{forged(1, wire::slot_first | wire::slot_last, 49, 1)}, "a length of 49 bytes"},
      {{forged(1, wire::slot_last, 1, 1)}, "an entry has no beginning"},
      {{forged(1, wire::slot_first, 48, 1), forged(1, wire::slot_first, 1, 1)}, "an entry begins inside another"},
      {{forged(1, wire::slot_first, 48, 1), forged(2, wire::slot_last, 1, 1)},
       "kind 2 of ticket 1 inside an entry of kind 1"},
      {{forged(1, wire::slot_first, 48, 1), forged(1, wire::slot_last, 1, 9)},
       "ticket 9 inside an entry of kind 1, ticket 1"},
      {{forged(1, wire::slot_first | wire::slot_last, 1, 5)}, "ticket 5, expected 1"},
      {{forged(1, wire::slot_first | wire::slot_last | wire::slot_outside, 9, 1)},
       "takes one slot and 8 bytes of it, this has 9 and flags 7"},
      {{forged(1, wire::slot_first | wire::slot_outside, 8, 1)},
       "takes one slot and 8 bytes of it, this has 8 and flags 5"},
      {{forged(1, wire::slot_first, 48, 1), forged(1, wire::slot_last | wire::slot_outside, 8, 1)},
       "this has 8 and flags 6"},
  };
  for (const Case& each : cases) {
    EntryReader reader(64, EntryReader::Tickets::counted);
    Entry entry;
    Result<bool> last = false;
    for (const Slot& slot : each.slots) {
      ASSERT_TRUE(reader.verifies(slot));
      last = reader.take(slot, entry);
    }
    ASSERT_FALSE(last) << each.message;
    EXPECT_EQ(last.error().code, Error::protocol);
    EXPECT_NE(last.error().message.find(each.message), std::string::npos) << last.error().message;
  }
}

TEST(Ring, AnEntryWithoutEndIsBounded) {
  EntryReader reader(64, EntryReader::Tickets::counted);
  Entry entry;
  Result<bool> taken = reader.take(forged(1, wire::slot_first, 48, 1), entry);
  std::uint64_t bytes = 48;
  while (taken) {
    ASSERT_LE(bytes, wire::entry_bytes_max);
    const auto lap = static_cast<std::uint32_t>(reader.position() / 64 + 1);
    taken = reader.take(forged(1, 0, 48, 1, lap), entry);
    bytes += 48;
  }
  EXPECT_EQ(taken.error().code, Error::protocol);
}

}  // namespace
}  // namespace offpath::channel
