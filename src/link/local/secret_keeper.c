// For tests: a program with secret memory. Without arguments it prints the address of its secret and the address of
// other mapped memory; both are the same in each run. With the number of a descriptor it reads its secret from there,
// writes back its user, and waits.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char secret[64 * 4096] __attribute__((aligned(4096)));
static char other[1 << 20] __attribute__((aligned(4096)));

int main(int count, char** arguments) {
  if (count < 2) {
    printf("%p %zu %p %zu\n", (void*)secret, sizeof secret, (void*)other, sizeof other);
    return 0;
  }
  memset(other, 'x', sizeof other);
  memset(secret, 's', sizeof secret);
  const unsigned user = geteuid();
  if (write(atoi(arguments[1]), &user, sizeof user) != sizeof user) return 1;
  for (;;) pause();
}
