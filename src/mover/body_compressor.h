// Compression of frames' bodies: the only code that uses liblz4 and libzstd, and the place to choose an engine of the
// card instead.
//
// No card's engine is used today, because none produces a format that Arrow IPC accepts. DOCA Compress offers DEFLATE
// on BlueField-2; on BlueField-3 it does not compress at all, and decompresses only DEFLATE and LZ4. Arrow supports LZ4
// frames and Zstandard. An engine that produces one of these would be another frame::BodyCompressor, returned here if
// its device exists.
#pragma once

#include <memory>

#include "frame/body_compression.h"
#include "wire/messages/stream_messages.h"

namespace offpath::mover {

// For any codec but none.
[[nodiscard]] std::shared_ptr<const frame::BodyCompressor> make_body_compressor(wire::Compression compression);

}  // namespace offpath::mover
