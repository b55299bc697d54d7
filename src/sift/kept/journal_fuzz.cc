// Kept objects come from disks and other members: arbitrary bytes.
#include "sift/kept/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace offpath;
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  if (const auto record = sift::decode_record(bytes)) {
    const auto again = sift::decode_record(sift::encode(*record));
    OFP_ASSERT(again && *again == *record);
  }
  if (const auto notes = sift::decode_run_notes(bytes))
    OFP_ASSERT(sift::decode_run_notes(sift::encode(*notes)).value() == *notes);
  if (const auto parts = sift::open_kept(bytes)) OFP_ASSERT(parts->body.size() + parts->notes.size() < size);
  if (const auto name = sift::KeptName::parse(text_of(bytes))) OFP_ASSERT(sift::KeptName::parse(name->text()) == name);
  return 0;
}
