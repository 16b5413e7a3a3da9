/* SPDX-License-Identifier: Apache-2.0 */
/* As the inits of images do: only as the first of its processes. */
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    struct stat own, first;
    if (getpid() != 1) {
        fprintf(stderr, "must be run as PID 1\n");
        return 100;
    }
    if (fstat(1, &own) != 0 || stat("/proc/1/fd/1", &first) != 0 || own.st_ino != first.st_ino) {
        fprintf(stderr, "/proc/1/fd/1 is not its output\n");
        return 101;
    }
    time_t now = time(NULL);
    printf("it is %s", ctime(&now));
    return 0;
}
