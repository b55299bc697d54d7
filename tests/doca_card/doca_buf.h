// Of the software card (software_card.h): what doca_link uses of the interface of this name, and no more.
#pragma once

#include <doca_error.h>
#include <cstdint>

extern "C" {
struct doca_buf;
doca_error_t doca_buf_dec_refcount(doca_buf* buffer, std::uint16_t* before);
}
