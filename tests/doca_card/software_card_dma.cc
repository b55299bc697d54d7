// libdoca_dma.so.2 is found by its own name; its functions are in libdoca_common.so.2, on which it depends.
#include "software_card.h"

#pragma GCC visibility push(default)
extern "C" SoftwareCard* software_card_of_dma();
SoftwareCard* software_card_of_dma() { return software_card(); }
#pragma GCC visibility pop
