// SPDX-License-Identifier: Apache-2.0
require('http').createServer((request, response) => response.end('hello\n')).listen(3000);
